"""Parts that the device programs of several families share. Imported when an entry is built, not before."""
