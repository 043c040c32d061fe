"""Control: what the members of a group are told while they run, and what they answer (topic `control`)."""
