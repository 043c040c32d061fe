"""One module for each kind of resource."""
