"""Clients of brokers, behind the port `Broker`: RabbitMQ, Redis streams, and a Python function in the place of one."""
