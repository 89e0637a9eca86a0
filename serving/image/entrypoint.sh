#!/bin/bash
# Runs the server as a child: the first process of a container ignores SIGTERM unless it handles it, and the server does not.
server=
stopped=
trap 'stopped=1; [ -z "$server" ] || kill -TERM "$server" 2>/dev/null' TERM INT
tensorflow_model_server "$@" &
server=$!
[ -z "$stopped" ] || kill -TERM "$server"
wait "$server"
code=$?
# A signal ends the wait before the server has ended.
while [ -n "$stopped" ] && kill -0 "$server" 2>/dev/null; do
  wait "$server"
done
[ -z "$stopped" ] || exit 0
exit "$code"
