"""Languages of documents, by the names that PostgreSQL has for them."""

SIMPLE = "simple"
"""Words as they are: for languages without a stemmer, and where too little text tells the language."""

LANGUAGES = frozenset(
    {
        "arabic",
        "armenian",
        "basque",
        "catalan",
        "danish",
        "dutch",
        "english",
        "finnish",
        "french",
        "german",
        "greek",
        "hindi",
        "hungarian",
        "indonesian",
        "irish",
        "italian",
        "lithuanian",
        "nepali",
        "norwegian",
        "portuguese",
        "romanian",
        "russian",
        "serbian",
        "spanish",
        "swedish",
        "tamil",
        "turkish",
        "yiddish",
    }
)
"""Those with a stemmer in PostgreSQL 15, the oldest that is supported; migration 0002 makes a configuration of each."""


def configuration(language: str) -> str:
    """The text search configuration for a language; that of `simple` for one that is not known."""
    return f"offsetzero_{language}" if language in LANGUAGES else SIMPLE
