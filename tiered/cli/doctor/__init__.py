"""`tiered doctor`: looks at everything that a broker stands on, and says in words what is wrong with it.

`examination` runs the areas one by one, each on a thread with a deadline; every other module is an area. Must
never change what it looks at: what is written is removed again, and nothing is created that was not there. Must
never show a secret.
"""
