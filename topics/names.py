"""Names on the cluster: the namespace before the name of a topic, a group or a transactional id."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Names:
    """Adds and takes off `settings.kafka.namespace`, so that several environments can share one cluster."""

    namespace: str = ""

    def topic(self, name: str) -> str:
        """The topic's name on the cluster."""
        return self.namespace + name

    def group(self, name: str) -> str:
        """The group id on the cluster."""
        return self.namespace + name

    def transactional_id(self, name: str) -> str:
        """The transactional id on the cluster."""
        return self.namespace + name

    def strip(self, cluster_name: str) -> str | None:
        """Our name of a topic or group on the cluster, or None when it is outside the namespace."""
        if not cluster_name.startswith(self.namespace):
            return None
        return cluster_name[len(self.namespace) :] or None
