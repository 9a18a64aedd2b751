//! Bundles a JavaScript or TypeScript project and its packages into one module, with esbuild.

mod lines;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::tool::Tool;
use crate::{cli_error::CliError, commands::node::project::Project};

const ESBUILD: Tool = Tool {
    program: "esbuild",
    beside: &["node_modules/.bin"],
    // `package.json` asks for it, or there would be no bundle.
    install: "npm install",
};

/// The file of the bundle. The SDK looks for this name in stacks.
const FILE: &str = "flowcell-bundle.js";

/// A part of esbuild's helper for asynchronous generators, and what replaces it. The helper tells a generator again to
/// return after each `await` of its `finally`, and so skips the rest of it. Only a delegate may be told again.
const RESUMES_RETURN: (&str, &str) = (r#"k === "return" ? k : "next""#, r#"k === "return" && v[1] ? k : "next""#);

/// Globals that a bundle contains only if its code names them. `sdk/js/src/web/globals/named.js` exports them.
const NAMED_GLOBALS: [&str; 13] = [
    "Blob",
    "Buffer",
    "File",
    "FormData",
    "Headers",
    "Request",
    "Response",
    "URL",
    "URLSearchParams",
    "crypto",
    "fetch",
    "process",
    "structuredClone",
];

/// Modules of Node.js that work without an operating system.
const NODE_MODULES: [&str; 8] =
    ["buffer", "path", "punycode", "querystring", "string_decoder", "timers", "url", "util"];

/// Modules of Node.js that the SDK adapts or replaces, and their files.
const ADAPTED_MODULES: [(&str, &str); 5] = [
    ("assert", "assert.cjs"),
    ("events", "events.cjs"),
    ("process", "process.js"),
    ("stream", "stream.cjs"),
    ("timers/promises", "timers-promises.js"),
];

/// Modules of Node.js that can be imported, and fail when they are used.
const ABSENT_MODULES: [&str; 31] = [
    "assert/strict",
    "async_hooks",
    "child_process",
    "cluster",
    "constants",
    "crypto",
    "dgram",
    "diagnostics_channel",
    "dns",
    "dns/promises",
    "fs",
    "fs/promises",
    "http",
    "http2",
    "https",
    "inspector",
    "module",
    "net",
    "os",
    "perf_hooks",
    "readline",
    "readline/promises",
    "stream/promises",
    "stream/web",
    "tls",
    "tty",
    "util/types",
    "v8",
    "vm",
    "worker_threads",
    "zlib",
];

/// Returns whether the project's `package.json` asks for esbuild.
pub(super) fn is_wanted(package: &Value) -> bool {
    ["dependencies", "devDependencies"].iter().any(|group| package[group]["esbuild"].is_string())
}

/// Bundles a project into a file in `out`. Returns the file. `root` is the folder of `--root`.
pub(super) fn bundle(project: &Project, main: &str, root: &Path, out: &Path) -> Result<PathBuf, CliError> {
    let sdk = sdk(project, root)?;
    let file = out.join(FILE);
    let mut command = ESBUILD.command(&project.folder)?;
    command.arg(main).args(["--bundle", "--format=esm", "--platform=browser", "--target=es2022"]);
    // The SDK's promises take the place of those of the engine, whose jobs nothing runs.
    command.args(["async-await", "async-generator", "for-await"].map(|feature| format!("--supported:{feature}=false")));
    command.args(["--external:flowcell:*", "--external:wasi:*"]);
    command.args(["--define:global=globalThis", "--define:process.env.NODE_ENV=\"production\""]);
    let own = |file: &str| sdk.join("src/web/globals").join(file).display().to_string();
    command.args(["always.js", "named.js"].map(|file| format!("--inject:{}", own(file))));
    for global in ["globalThis", "self", "global"] {
        command.args(NAMED_GLOBALS.map(|name| format!("--define:{global}.{name}={name}")));
    }
    let there = NODE_MODULES.map(|name| (name, format!("@jspm/core/nodelibs/{name}")));
    let adapted = ADAPTED_MODULES.map(|(name, file)| (name, own(file)));
    let absent = ABSENT_MODULES.map(|name| (name, own("absent.cjs")));
    for (name, target) in there.into_iter().chain(adapted).chain(absent) {
        command.args([format!("--alias:{name}={target}"), format!("--alias:node:{name}={target}")]);
    }
    // One SDK for the code and the globals, also if the project has two copies.
    command.arg(format!("--alias:flowcell-sdk={}", sdk.join("index.js").display()));
    command.args(["--sourcemap=external", "--sources-content=false", "--log-level=warning"]);
    command.arg(format!("--outfile={}", file.display()));
    // An SDK outside of the project finds its packages in the project, too.
    command.env("NODE_PATH", project.folder.join("node_modules"));
    ESBUILD.output_of(command, || None)?;
    let failed = |error: &dyn std::error::Error| CliError::internal("cannot read the bundle").cause(&error.to_string());
    let map = fs::read_to_string(out.join(format!("{FILE}.map"))).map_err(|error| failed(&error))?;
    let code = fs::read_to_string(&file).map_err(|error| failed(&error))?;
    let mut code = lines::without_paths(&code.replace(RESUMES_RETURN.0, RESUMES_RETURN.1));
    code.push_str(&lines::statement(&map, out, &[&project.folder, root]).map_err(|error| failed(&error))?);
    fs::write(&file, code).map_err(|error| failed(&error))?;
    Ok(file)
}

/// Returns the folder of the SDK: the copy in the project, the installed package, or the one of this tree.
fn sdk(project: &Project, root: &Path) -> Result<PathBuf, CliError> {
    let folders = [
        project.folder.join("vendor/flowcell-sdk"),
        project.folder.join("node_modules/flowcell-sdk"),
        root.join("sdk/js"),
    ];
    let found = folders.iter().find(|folder| folder.join("src/web/globals/always.js").is_file());
    found.and_then(|folder| folder.canonicalize().ok()).ok_or_else(|| {
        CliError::wrong("the project has no SDK that can be bundled")
            .hint("copy `vendor/flowcell-sdk` of a project that `flowcell node new NAME --lang js` creates")
    })
}
