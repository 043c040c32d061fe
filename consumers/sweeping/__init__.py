"""The sweeper: takes steps of runs away from members that are gone, and from those that take too long."""
