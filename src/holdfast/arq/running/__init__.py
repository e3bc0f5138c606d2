"""Running dispatched jobs inside an arq worker."""
