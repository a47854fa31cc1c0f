"""The floors below the loop, through compiled test doors."""
from doors.build import build

build()
