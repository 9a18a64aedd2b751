//! A browser that tests steer over WebDriver: Chromium, by chromedriver, over plain HTTP.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    panic::AssertUnwindSafe,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::client::ask;

/// The longest wait for a condition of a page.
const MAX_WAIT: Duration = Duration::from_secs(120);
/// The driver binds one free port for two families of addresses. Another process may take it in between.
const MAX_STARTS: usize = 5;
/// The member of an element in WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser, until the value is dropped.
pub(crate) struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
}

impl Browser {
    pub(crate) fn start() -> Browser {
        let (driver, port) = (0..MAX_STARTS).find_map(|_| Self::start_driver()).expect("no driver starts");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut browser = Browser { driver, address, session: String::new() };
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let opened = browser.send("POST", "/session", &wanted);
        browser.session = format!("/session/{}", opened["sessionId"].as_str().unwrap());
        browser
    }

    /// Starts the driver. Returns its process and its port, or `None` if it ends at once.
    fn start_driver() -> Option<(Child, u16)> {
        let mut driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map(Result::unwrap);
        let port = lines.find_map(|line| line.split_once("successfully on port ").map(|(_, port)| port.to_owned()));
        let Some(port) = port else {
            driver.wait().unwrap();
            return None;
        };
        // Read the later output, so that the driver does not block.
        std::thread::spawn(move || lines.count());
        Some((driver, port.trim_end_matches('.').parse().unwrap()))
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let answer = ask(self.address, method, &format!("{}{path}", self.session), &[], &body);
        let value = answer.json()["value"].clone();
        assert_eq!(answer.status, 200, "{method} {path}: {value}");
        value
    }

    /// Opens a page, and waits until it is loaded.
    pub(crate) fn open(&self, url: &str) {
        self.send("POST", "/url", &json!({ "url": url }));
    }

    /// Runs a script in the page.
    pub(crate) fn execute(&self, script: &str, arguments: &Value) -> Value {
        self.send("POST", "/execute/sync", &json!({ "script": script, "args": arguments }))
    }

    /// Runs a script in the page, and waits until it calls its last argument.
    pub(crate) fn execute_async(&self, script: &str) -> Value {
        self.send("POST", "/execute/async", &json!({ "script": script, "args": [] }))
    }

    /// Waits until an expression is true in the page. The page looks at it at each change, and a page that is left is asked
    /// again.
    pub(crate) fn wait_until(&self, expression: &str) {
        let script = format!(
            "const done = arguments[0]; \
             const check = () => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }}; \
             if (check()) return done(true); \
             const seen = new MutationObserver(() => check() && done(true)); \
             seen.observe(document, {{ subtree: true, childList: true, characterData: true, attributes: true }}); \
             setTimeout(() => done(check()), 2000);"
        );
        let until = Instant::now() + MAX_WAIT;
        while Instant::now() < until {
            // The answer is an error if another page is loaded meanwhile.
            let asked = json!({ "script": script, "args": [] }).to_string();
            let path = format!("{}/execute/async", self.session);
            if ask(self.address, "POST", &path, &[], &asked).json()["value"] == true {
                return;
            }
        }
        let page = self.execute("return document.title + ' ' + location + ' ' + document.body.innerText", &json!([]));
        panic!("it is never true that {expression}: {page}; {:?}", self.errors());
    }

    fn element(&self, selector: &str) -> String {
        let found = self.send("POST", "/element", &json!({ "using": "css selector", "value": selector }));
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    /// Writes into a field.
    pub(crate) fn write(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.send("POST", &format!("/element/{element}/value"), &json!({ "text": text }));
    }

    /// Presses keys, one after another, wherever the focus is.
    pub(crate) fn keys(&self, keys: &str) {
        let presses =
            keys.chars().flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key })));
        let actions = json!([{ "type": "key", "id": "keyboard", "actions": presses.collect::<Vec<_>>() }]);
        self.send("POST", "/actions", &json!({ "actions": actions }));
    }

    /// Presses a key while another one is held.
    pub(crate) fn hold(&self, held: char, key: char) {
        let press = |kind: &str, key: char| json!({ "type": kind, "value": key });
        let presses = [press("keyDown", held), press("keyDown", key), press("keyUp", key), press("keyUp", held)];
        let actions = json!([{ "type": "key", "id": "keyboard", "actions": presses }]);
        self.send("POST", "/actions", &json!({ "actions": actions }));
    }

    /// Presses Tab until the focus is on an element that fits a selector, and then Enter.
    pub(crate) fn enter(&self, selector: &str) {
        let focused = "return document.activeElement.matches(arguments[0])";
        for _ in 0..200 {
            if self.execute(focused, &json!([selector])) == true {
                return self.keys("\u{e007}");
            }
            self.keys("\u{e004}");
        }
        panic!("no press of Tab leads to {selector}");
    }

    /// Begins to measure what [`Browser::metric`] returns.
    pub(crate) fn watch(&self) {
        self.send("POST", "/goog/cdp/execute", &json!({ "cmd": "Performance.enable", "params": {} }));
    }

    /// Returns a measurement of the browser, such as `ScriptDuration` in seconds.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let all = self.send("POST", "/goog/cdp/execute", &json!({ "cmd": "Performance.getMetrics", "params": {} }));
        let found = all["metrics"].as_array().unwrap().iter().find(|metric| metric["name"] == name);
        found.and_then(|metric| metric["value"].as_f64()).unwrap_or_default()
    }

    /// Shows pages in `light` or `dark`.
    pub(crate) fn set_scheme(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }, { "name": "prefers-reduced-motion", "value": "reduce" }]);
        let command = json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": features } });
        self.send("POST", "/goog/cdp/execute", &command);
    }

    /// Returns a picture of the page, as PNG in Base64.
    pub(crate) fn screenshot(&self) -> String {
        self.send("GET", "/screenshot", &json!({})).as_str().unwrap().to_owned()
    }

    /// Changes the width of the window, with a page of this width.
    pub(crate) fn resize(&self, width: u32) {
        let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": metrics });
        self.send("POST", "/goog/cdp/execute", &command);
    }

    /// Returns the errors that pages have reported, such as violations of their policy.
    pub(crate) fn errors(&self) -> Vec<String> {
        let entries = self.send("POST", "/se/log", &json!({ "type": "browser" }));
        let severe = entries.as_array().unwrap().iter().filter(|entry| entry["level"] == "SEVERE");
        severe.map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser may have broken, and the test may be failing.
        let _ = std::panic::catch_unwind(AssertUnwindSafe(|| self.send("DELETE", "", &json!({}))));
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
