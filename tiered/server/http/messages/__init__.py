"""The forms of requests and answers: schemas, parameters, bodies, errors, and the document that lists them."""
