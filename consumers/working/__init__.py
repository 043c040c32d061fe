"""From records to outcomes, on workers: what may run, handlers and their effects, what follows a failure."""
