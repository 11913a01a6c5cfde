# webdriver.bash -- a browser that scripts can look at and click: chromedriver's WebDriver protocol
# spoken by curl and jq. Sourced after cli/lib.bash. Skips the test where the browser is missing.
for tool in chromium chromedriver curl jq; do
    command -v $tool >/dev/null || skip_all "no $tool"
done

browser_up() {
    # Root has no sandbox; a small /dev/shm would end the browser in the middle of a big page.
    local root=() port
    [ "$(id -u)" = 0 ] && root=(--no-sandbox)
    : >driver.log
    setpriv --pdeathsig TERM -- chromedriver --port=0 >driver.log 2>&1 &
    driver_pid=$!
    trap 'browser_down; rm -rf "$work"' EXIT
    wait_while $driver_pid grep -q 'started successfully on port' driver.log
    port=$(sed -n 's/.*started successfully on port \([0-9]*\).*/\1/p' driver.log)
    driver=http://127.0.0.1:$port
    session=$(jq -n '{capabilities: {alwaysMatch: {browserName: "chrome",
        timeouts: {script: 3600000, pageLoad: 3600000},
        "goog:chromeOptions": {args: $ARGS.positional},
        "goog:loggingPrefs": {browser: "ALL", performance: "ALL"}}}}' --args -- --headless=new \
        --disable-gpu --disable-dev-shm-usage --hide-scrollbars --window-size=1280,900 \
        --user-data-dir="$work/profile" "${root[@]}" |
        curl -s -d @- "$driver/session" | jq -r '.value.sessionId // empty')
    [ -n "$session" ] || fail "the browser does not start"
    open_page about:blank
    log performance >/dev/null # what its own first page asked for
}

browser_down() {
    [ -z "${session:-}" ] || curl -s -m 10 -X DELETE "$driver/session/$session" >/dev/null
    [ -z "${driver_pid:-}" ] || { kill "$driver_pid" && wait "$driver_pid"; } 2>/dev/null
}

# ask PATH: the JSON on stdin goes to the browser, its answer's value to stdout.
ask() {
    curl -s -d @- "$driver/session/$session/$1" |
        jq -c '.value | if type == "object" and has("error") then error(.message) else . end' ||
        fail "the browser, asked for $1, gave no answer"
}

# js SCRIPT: what it returns, once all that was asked for is drawn: two frames later. Texts come
# without their quotes.
js() {
    jq -n --arg script "$1" '{args: [], script: ("const done = arguments[0], go = () => { let x;"
        + "try { x = (() => {" + $script + "})(); } catch (e) { x = `threw ${e}`; } done(x); };"
        + "requestAnimationFrame(() => requestAnimationFrame(go));")}' | ask execute/async |
        jq -r 'if type == "string" then . else tojson end'
}

devtools() { # COMMAND PARAMETERS: of Chromium's own protocol
    jq -n --arg cmd "$1" --argjson params "$2" '{cmd: $cmd, params: $params}' | ask goog/cdp/execute
}

open_page() { jq -n --arg url "$1" '{url: $url}' | ask url >/dev/null; }

# place CSS: brings the element into view and tells its middle as two numbers.
place() {
    js "const x = document.querySelector('$1'); x.scrollIntoView({block: 'center'});
        const r = x.getBoundingClientRect();
        return Math.round(r.x + r.width / 2) + ' ' + Math.round(r.y + r.height / 2);"
}

# act CSS ACTION...: of a mouse; "X Y" moves to that place from the element's middle.
act() {
    local at
    read -r -a at <<<"$(place "$1")"
    [ ${#at[@]} = 2 ] || fail "nothing to click at: $1"
    shift
    jq -n --argjson x "${at[0]}" --argjson y "${at[1]}" '{actions: [{
        type: "pointer", id: "mouse", parameters: {pointerType: "mouse"},
        actions: [$ARGS.positional[]
            | if . == "down" then {type: "pointerDown", button: 0}
              elif . == "up" then {type: "pointerUp", button: 0}
              else split(" ") | map(tonumber)
                | {type: "pointerMove", duration: 10, x: ($x + .[0]), y: ($y + .[1])} end]}]}' \
        --args "$@" | ask actions >/dev/null
}
hover() { act "$1" "$2 $3"; }
click() { act "$1" "0 0" down up; }
drag() { act "$1" "$2 0" down "$((($2 + $3) / 2)) 0" "$3 0" up; } # CSS FROM_X TO_X
wheel() { # CSS DELTA
    local at
    read -r -a at <<<"$(place "$1")"
    jq -n --argjson x "${at[0]}" --argjson y "${at[1]}" --argjson by "$2" '{actions: [{
        type: "wheel", id: "wheel",
        actions: [{type: "scroll", x: $x, y: $y, deltaX: 0, deltaY: $by, duration: 0}]}]}' |
        ask actions >/dev/null
}
press() { # KEY: to what has the focus
    jq -n --arg key "$1" '{actions: [{type: "key", id: "keys",
        actions: [{type: "keyDown", value: $key}, {type: "keyUp", value: $key}]}]}' |
        ask actions >/dev/null
}

# screen WIDTH HEIGHT MOBILE
screen() {
    devtools Emulation.setDeviceMetricsOverride \
        "{\"width\": $1, \"height\": $2, \"deviceScaleFactor\": 1, \"mobile\": $3}" >/dev/null
}

# The whole page as FR_SHOTS/NAME.png, for people to look at.
shot() {
    [ -n "${FR_SHOTS:-}" ] || return 0
    devtools Page.captureScreenshot '{"captureBeyondViewport": true, "format": "png"}' |
        jq -r .data | base64 -d >"$FR_SHOTS/$1.png"
}

# log TYPE: entries since the last time.
log() { jq -n --arg type "$1" '{type: $type}' | ask se/log; }
