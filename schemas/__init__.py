"""Event models, their frozen Avro contracts, the codec and the CloudEvents binding."""
