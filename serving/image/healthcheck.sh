#!/bin/bash
# The port opens after the first load, and a server that hangs or has gone does not take the connection.
exec 3<>"/dev/tcp/127.0.0.1/${1:-8500}"
