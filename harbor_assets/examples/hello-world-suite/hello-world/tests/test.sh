#!/bin/bash
# Reward 1 if /app/hello.txt holds the line asked for and nothing else, else 0.

mkdir -p /logs/verifier

if [ ! -f /app/hello.txt ]; then
    echo 'FAIL: /app/hello.txt is not there'
    reward=0
elif [ "$(cat /app/hello.txt; echo end)" != $'Hello, world!\nend' ]; then
    echo 'FAIL: /app/hello.txt holds something else:'
    head -c 1000 /app/hello.txt
    reward=0
else
    echo 'PASS'
    reward=1
fi

echo "$reward" > /logs/verifier/reward.txt
