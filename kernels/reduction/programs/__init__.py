"""Device programs in TileLang. Imported when an entry is built, not before."""
