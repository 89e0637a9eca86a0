"""Makes models.config, batching parameters and monitoring.config from the models, checks them, and reads them line by line."""
