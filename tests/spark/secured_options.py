"""Options that hold a secret."""

SECRET = "hunter2-in-the-open"
SECURED = [
    {"kafka.sasl.jaas.config": f'org.apache.kafka.Login required username="me" password="{SECRET}";'},
    {"kafka.ssl.keystore.password": SECRET},
    {"kafka.ssl.key.password": SECRET},
    {"kafka.security.protocol": f"SASL_{SECRET}"},
    {"kafka.sasl.passwort": SECRET},
    {"kafka.my.token": SECRET},
    {"catalog": f"http://me:{SECRET}@broker:8080"},
]
