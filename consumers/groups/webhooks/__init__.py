"""Signed webhooks: Standard Webhooks 1.0.0 (https://www.standardwebhooks.com), without opening the internal network."""
