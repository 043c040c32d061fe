"""Making a projection anew beside the one that is read, and having the new one read (design section 9)."""
