"""A source and an access mode in, the text of a `ragstore.toml` that names every option out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from ragstore.errors import ConfigError

AccessMode = Literal["open", "groups", "azure"]

_HEAD: Final = """\
# ragstore.toml: what is indexed, how, and who may read what is found.
# Relative paths start from the folder of this file. Secrets never stand here: name the environment variable that holds one.
# RAGSTORE_SECTION__KEY in the environment overrides a key, for example RAGSTORE_STORE__PATH. An unknown key is an error.
"""

_FOLDER: Final = """
[source]                            # several sources: [[source]], once for each
type = "folder"
path = {place}
# container = "docs"                # its name in results; default: the folder's
# feed = "watch"                    # what `ragstore worker` follows; needs: pip install 'ragstore[watch]'; default: "listing"
{hash}tags = "tags.json"{pad}                # index tags of files: {{"reports/may.pdf": {{"allowed": "staff hr"}}}}
"""

_AZURE: Final = """
[source]                            # several sources: [[source]], once for each
type = "azure-blob"                 # needs: pip install 'ragstore[azure]'
url = {place}
# Without one of these three, the identity of azure-identity is used (az login, managed identity, environment).
# It needs the role "Storage Blob Data Reader", and "Storage Blob Data Owner" or the tags/read action to read index tags.
# connection_string_env = "AZURE_STORAGE_CONNECTION_STRING"
# sas_env = "AZURE_STORAGE_SAS"
# account_key_env = "AZURE_STORAGE_KEY"
# account = "name"                  # where a domain of your own hides the account's name
# tags = true                       # false leaves index tags unread
# parallel = 4                      # ranges of one blob that are read at once
# hierarchical = true               # ADLS Gen2: blobs and folders have ACLs, and no tags; without it the service is asked
# dfs_url = "https://dfs.example"   # the account's dfs endpoint, where a domain of your own hides it
# What `ragstore worker` follows; default: "listing". A queue is filled by an Event Grid subscription of the account.
# feed = ["change-feed", "event-queue"]
# event-queue = {{queue = "blob-events"}}
"""

_ANY_SOURCE: Final = """\
# prefix = "reports/"               # only paths that start so
# include = ["**/*.md", "**/*.pdf"] # only these; default: all
{exclude}# max_bytes = 268_435_456           # a larger blob goes to quarantine unread
"""

_EXCLUDE: Final = """\
# exclude = ["drafts/**"]           # but not these
"""

_OPEN: Final = """
[access]
# WHOEVER CAN ASK THIS INDEX READS EVERYTHING IN IT. Right for a folder of your own; wrong as soon as people with different rights ask.
mode = "open"
# For those: mode = "azure" (role assignments decide; see: ragstore init --access azure), or mode = "groups" and exactly one place
# that lists the ids (of people or groups) who may read a blob. No list means nobody.
# principals = "principals.json"    # who asks: [{"id": "ada", "name": "Ada", "groups": ["staff"]}]
# metadata_key = "allowed_ids"      # metadata of each blob: ids separated by spaces or commas
# tag_key = "allowed"               # or an index tag: ids between spaces; it holds six GUIDs, more go to allowed-1, allowed-2
# rules = "access-rules.toml"       # or a file of globs: "reports/**" = ["hr-team", "ada"]; the last match decides
"""

_GROUPS: Final = """
[access]
# A blob is read by the ids (of people or groups) that it lists, and by nobody where it lists none.
# Whoever may write that list may grant: protect the metadata, the tags or the file of rules as you protect the blobs.
mode = "groups"                     # "open": every caller reads everything
principals = "principals.json"      # who asks: [{"id": "ada", "name": "Ada", "groups": ["staff"]}]
# Exactly one of these three places:
tag_key = "allowed"                 # an index tag: ids between spaces; it holds six GUIDs, more go to allowed-1, allowed-2
# metadata_key = "allowed_ids"      # metadata of each blob: ids separated by spaces or commas
# rules = "access-rules.toml"       # a file of globs: "reports/**" = ["hr-team", "ada"]; the last match decides
"""

_AS_AZURE: Final = """
[access]
# What Azure Storage grants by role assignments, their conditions, deny assignments and ACLs; ragstore policy check looks these files over.
mode = "azure"                      # "groups": each blob lists who reads it; "open": every caller reads everything
principals = "principals.json"      # who asks: [{"id": "GUID", "name": "Ada", "groups": ["GUID"], "attributes": {"SET_NAME": "x"}}]
assignments = "assignments.json"    # az role assignment list --all --include-inherited -o json > assignments.json
deny_assignments = "none"           # or a file: az rest --method get --url '.../denyAssignments?api-version=2022-04-01' > deny.json
# role_definitions = "roles.json"   # az role definition list -o json > roles.json, where custom roles are assigned
# accounts = ["/subscriptions/ID/resourceGroups/RG/providers/Microsoft.Storage/storageAccounts/NAME"]   # az storage account show --query id
"""

_ANY_ACCESS: Final = """\
# max_age_hours = 48                # nobody is shown a blob whose attributes were not looked at for so long
# audit = "audit.jsonl"             # a line for each answer: who asked, by which policy, which chunk ids; never content
# [access.graph]                    # groups and attributes of those who ask with a token of Entra ID, by Microsoft Graph
# cache_seconds = 300
"""

_REST: Final = """
[embedder]
type = "minilm"                     # offline, English. Or "openvino" (faster on newer CPUs), "openai", "sentence-transformers",
                                    # or "hash": no model, matches words only. Another embedder needs: ragstore index --reembed
# model_path = "models/minilm"      # minilm: a folder with its files, where they are not installed
# download = true                   # minilm: fetch them from the Hugging Face Hub where they are missing
# workers = 2                       # minilm: threads

# [reranker]                        # a model that orders the best 50 hits anew; without it none does
# type = "rerank-api"               # sends their texts to a service; needs: pip install 'ragstore[rerank]'
# style = "cohere"                  # or "jina", "voyage" (their keys in CO_API_KEY, JINA_API_KEY, VOYAGE_API_KEY), or "tei"
# model = "NAME"                    # rerank-api: also base_url (needed for "tei"), api_key_env, max_batch, max_bytes, concurrency, timeout,
                                    # attempts; cross-encoder: also revision, device, batch_size, max_length
# type = "cross-encoder"            # runs here, model = "FOLDER" or a name; needs: pip install 'ragstore[sentence-transformers]'

[chunking]
size = 254                          # tokens of content in a chunk; with two special tokens at most what the embedder reads
min_ratio = 0.3                     # a chunk under this share of the size is joined to its neighbour where that fits

[store]
type = "lancedb"                    # "memory" keeps nothing
path = ".ragstore/index"            # or "az://container/path"
# account = "name"                  # for az://; also endpoint, and connection_string_env, account_key_env or sas_token_env
# ann_from = 100_000                # rows from which on an approximate index is built
# exact_below = 50_000              # with that index: filters that admit fewer rows are still searched exactly
# refine = 20                       # with that index: candidates per hit that are ranked by their full vectors
# type = "pgvector"                 # needs: pip install 'ragstore[pgvector]', and pgvector 0.8 or newer in the database
# url = "postgresql://USER@HOST/DATABASE"   # pgvector: the password in PGPASSWORD or ~/.pgpass; or url_env = "VARIABLE" that holds it all
# schema = "ragstore"               # pgvector: also precision = "f16", pool_size, ann_from, exact_below (rows by PostgreSQL's estimate)
# reader_url = "postgresql://READER@HOST/DATABASE"   # pgvector: a user of SELECT alone, for searches; or reader_url_env = "VARIABLE"
# type = "azure-search"             # needs: pip install 'ragstore[azure-search]'; without key_env the environment's identity is asked
# endpoint = "https://NAME.search.windows.net"   # azure-search; with key_env = "VARIABLE" that holds an admin key
# index = "ragstore"                # azure-search: names begin so; also semantic, batch_rows, batch_bytes, exact_below, timeout, settle
# type = "pinecone"                 # needs: pip install 'ragstore[pinecone]', and the key in the variable api_key_env = "PINECONE_API_KEY"
# index = "NAME"                    # pinecone: serverless, metric cosine; or host = "HOST"; with cloud and region it is made
# namespace = "ragstore"            # pinecone: also endpoint, concurrency, timeout, attempts, retry_seconds, wait_seconds for own writes

[ledger]
url = "sqlite:///.ragstore/ledger.db"
# url = "postgresql://USER@HOST/DATABASE?schema=NAME"   # for several workers; the password: PGPASSWORD or ~/.pgpass; a schema per index

[cache]
keep = 30                           # days that vectors of texts are kept which no chunk has any more

[guard]                             # a listing that would delete more than BOTH stops and asks: --allow-mass-delete
delete_share = 0.3
delete_count = 20
other_containers = "delete"         # blobs of a container that no [source] names any more; "keep" leaves them in the index

[parsing]                           # limits of the processes that read PDF, Office and other formats
workers = 2
seconds = 60                        # without a sign of life; then the blob goes to quarantine
memory = 2_147_483_648              # bytes for each process
text = 67_108_864                   # bytes of text from one blob that is not plain text

[worker]
reconcile_hours = 24                # between two listings, which find what no feed told
batch = 256                         # blobs that are applied together
backlog = 50_000                    # changes that may wait before feeds are read no further

[retrieval]                         # each can be said for one query too: ragstore search --help
fusion = "max-norm"                 # how the scores of vectors and words become one; "rrf" looks at ranks only
# vector_weight = 0.5               # share of the vectors in that, 0 to 1; default: more where the best vector is near and words are common
near_duplicates = 1.0               # 0.8: of texts that share 80 % of their words only the best is shown; 1.0: of equal texts
mmr = 1.0                           # 0.7: prefer hits that are unlike those before, at some cost of relevance; 1.0: relevance alone
half_life_days = 0                  # 180: lift what was modified lately; half of that lift is gone after 180 days; 0: none
neighbours = 0                      # 1: a hit brings the chunk before and the chunk behind it
# rerank = false                    # with a [reranker]: only for queries that ask for it; default: for all

[prompt]
max_tokens = 3000                   # of the whole prompt
# template = "summarise"            # or "answer", "chat"; or a file with your own words around question and sources: "prompt.jinja"
# tokenizer = "tokenizer.json"      # of the model that answers, so that the limit is exact for it; default: the embedder's tokens

[ask]                               # ragstore ask, and /v1/chat/completions of ragstore serve. Prompts, documents and all, are sent there
# base_url = "https://api.openai.com/v1"   # or any OpenAI-compatible API, also one on this machine: "http://127.0.0.1:11434/v1"
# model = "NAME"
# api_key_env = "OPENAI_API_KEY"    # the variable that holds the key; without it none is sent
timeout = 120                       # seconds between two pieces of an answer

[service]                           # ragstore serve; needs: pip install 'ragstore[service]'
host = "127.0.0.1"
port = 8000
rate = 600                          # requests per minute and principal, 0 for no limit; burst of them at once
burst = 60
max_body = 65_536                   # bytes of a request
timeout = 30                        # seconds for a request
concurrency = 256                   # requests at a time, answers that still stream included; more are told to come again (503)
# keys = [{principal = "ada", hash = "sha256:..."}]   # of API keys, as ragstore serve --new-key prints it; no principal: reads metrics
# tokens = {issuer = "https://login.microsoftonline.com/TENANT/v2.0", audience = "CLIENT-ID"}   # or bearer tokens of OpenID Connect
# ^ also jwks_url, algorithms = ["RS256", "ES256"], leeway = 60, groups_claim = "sometimes", ids = "guid"

[chat]                              # /v1/chat/completions and /v1/conversations of ragstore serve, where [ask] names a model
timeout = 300                       # seconds for a whole answer
max_body = 1_048_576                # bytes of a request, earlier messages included
keep_days = 30                      # that a conversation is kept after its last turn, where its client asks for that; 0: none is kept
# conversations = "conversations.db"   # where; default: beside the ledger
rewrite = true                      # have the model put "and in Berlin?" so that it stands alone, and look that up; false: as it stands
rewrite_timeout = 5                 # seconds for that; then it is looked up as it stands
"""


_ACCESS: Final[Mapping[AccessMode, str]] = {"open": _OPEN, "groups": _GROUPS, "azure": _AS_AZURE}


def render(source: Mapping[str, str], access: AccessMode, *, exclude: Sequence[str] = ()) -> str:
    """The text of the file. `source` is what `opening.source_section` gives, `exclude` the globs to start with.

    Raises `ConfigError` for a place that TOML cannot hold.
    """
    if source["type"] == "folder":
        commented, pad = ("", "  ") if access != "open" else ("# ", "")
        section = _FOLDER.format(place=toml_string(source["path"]), hash=commented, pad=pad)
    else:
        section = _AZURE.format(place=toml_string(source["url"]))
    names = f"exclude = [{', '.join(map(toml_string, exclude))}]"
    left_out = f"{names:35} # but not these\n" if exclude else _EXCLUDE
    return _HEAD + section + _ANY_SOURCE.format(exclude=left_out) + _ACCESS[access] + _ANY_ACCESS + _REST


def toml_string(text: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON but for DEL. Raises `ConfigError` for lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"the name {text!r} is not valid Unicode, which a configuration file must be; rename the folder") from error
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
