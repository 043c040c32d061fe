"""The group `usage`: what each tenant has sent and what became of it, a minute at a time, as a Faust app.

A view for people and for graphs: nothing is decided by it, and it is in no transaction of ours (docs/usage.md).
"""

NAME = "usage"
