"""`python -m dslaunch` is the command `dslaunch`."""
from .programs import start

start("dslaunch")
