# webdriver.bash -- a browser that scripts can look at and click: chromedriver's WebDriver protocol
# spoken by curl and jq. Sourced after cli/lib.bash. Skips the test where the browser is missing.
for tool in chromium chromedriver curl jq; do
    command -v $tool >/dev/null || {
        echo "skipped: no $tool"
        exit 77
    }
done

browser_up() {
    # Root has no sandbox; a small /dev/shm would end the browser in the middle of a big page.
    local root=() port
    [ "$(id -u)" = 0 ] && root=(--no-sandbox)
    chromedriver --port=0 >driver.log 2>&1 &
    driver_pid=$!
    trap 'browser_down; rm -rf "$work"' EXIT
    for _ in $(seq 100); do
        port=$(sed -n 's/.*started successfully on port \([0-9]*\).*/\1/p' driver.log)
        [ -z "$port" ] || break
        sleep 0.1
    done
    [ -n "$port" ] || fail "chromedriver does not start: $(cat driver.log)"
    driver=http://127.0.0.1:$port
    session=$(jq -n '{capabilities: {alwaysMatch: {browserName: "chrome",
        "goog:chromeOptions": {args: $ARGS.positional},
        "goog:loggingPrefs": {browser: "ALL", performance: "ALL"}}}}' --args -- --headless=new \
        --disable-gpu --disable-dev-shm-usage --hide-scrollbars --window-size=1280,900 \
        --user-data-dir="$work/profile" "${root[@]}" |
        curl -s -m 60 -d @- "$driver/session" | jq -r '.value.sessionId // empty')
    [ -n "$session" ] || fail "the browser does not start"
}

browser_down() {
    [ -z "${session:-}" ] || curl -s -m 10 -X DELETE "$driver/session/$session" >/dev/null
    [ -z "${driver_pid:-}" ] || { kill "$driver_pid" && wait "$driver_pid"; } 2>/dev/null
}

# ask PATH: the JSON on stdin goes to the browser, its answer's value to stdout.
ask() {
    local answer
    answer=$(curl -s -m 60 -d @- "$driver/session/$session/$1") || fail "the browser is gone"
    jq -e '.value | type == "object" and has("error")' <<<"$answer" >/dev/null &&
        fail "browser: $1: $(jq -r '.value.message' <<<"$answer" | head -3)"
    jq -c .value <<<"$answer"
}

# js SCRIPT: what it returns; texts without their quotes.
js() { jq -n --arg script "$1" '{script: $script, args: []}' | ask execute/sync | jq -r 'if type == "string" then . else tojson end'; }

devtools() { jq -n --arg cmd "$1" --argjson params "$2" '{cmd: $cmd, params: $params}' | ask goog/cdp/execute; }

# open_page FILE: and let it draw.
open_page() {
    jq -n --arg url "$1" '{url: $url}' | ask url >/dev/null
    settle
}

# Two frames: what was asked for is drawn in the first one.
settle() {
    echo '{"script": "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done(1)));", "args": []}' |
        ask execute/async >/dev/null
}

element() { jq -n --arg css "$1" '{using: "css selector", value: $css}' | ask element | jq -r '.[]'; }

# act CSS ACTION...: mouse actions (JSON) with the element's middle as their origin, scrolled to.
act() {
    local id
    id=$(element "$1") || exit 1
    js "document.querySelector('$1').scrollIntoView({block: 'center'})" >/dev/null
    shift
    jq -n --arg id "$id" '{actions: [{type: "pointer", id: "mouse", parameters: {pointerType: "mouse"},
        actions: [$ARGS.positional[] | fromjson | if .type == "pointerMove"
            then . + {duration: 20, origin: {"element-6066-11e4-a52e-4f735466cecf": $id}} else . end]}]}' --args "$@" |
        ask actions >/dev/null || exit 1
    settle
}
hover() { act "$1" "{\"type\": \"pointerMove\", \"x\": $2, \"y\": $3}"; }
click_at() { act "$1" "{\"type\": \"pointerMove\", \"x\": $2, \"y\": $3}" '{"type": "pointerDown", "button": 0}' '{"type": "pointerUp", "button": 0}'; }
click() { click_at "$1" 0 0; }
drag() { # CSS FROM_X TO_X
    act "$1" "{\"type\": \"pointerMove\", \"x\": $2, \"y\": 0}" '{"type": "pointerDown", "button": 0}' \
        "{\"type\": \"pointerMove\", \"x\": $((($2 + $3) / 2)), \"y\": 0}" "{\"type\": \"pointerMove\", \"x\": $3, \"y\": 0}" '{"type": "pointerUp", "button": 0}'
}
wheel() { # CSS DELTA
    local id
    id=$(element "$1") || exit 1
    jq -n --arg id "$id" --argjson by "$2" '{actions: [{type: "wheel", id: "wheel", actions: [{type: "scroll", x: 0, y: 0,
        deltaX: 0, deltaY: $by, duration: 0, origin: {"element-6066-11e4-a52e-4f735466cecf": $id}}]}]}' | ask actions >/dev/null
    settle
}
press() { # KEY: to what has the focus
    jq -n --arg key "$1" '{actions: [{type: "key", id: "keys", actions: [{type: "keyDown", value: $key}, {type: "keyUp", value: $key}]}]}' |
        ask actions >/dev/null
    settle
}

# screen WIDTH HEIGHT MOBILE
screen() {
    devtools Emulation.setDeviceMetricsOverride "{\"width\": $1, \"height\": $2, \"deviceScaleFactor\": 1, \"mobile\": $3}" >/dev/null
    settle
}

# The whole page as FR_SHOTS/NAME.png, for people to look at.
shot() {
    [ -n "${FR_SHOTS:-}" ] || return 0
    devtools Page.captureScreenshot '{"captureBeyondViewport": true, "format": "png"}' |
        jq -r .data | base64 -d >"$FR_SHOTS/$1.png"
}

# log TYPE: entries since the last time.
log() { jq -n --arg type "$1" '{type: $type}' | ask se/log; }
