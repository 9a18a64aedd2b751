//! Bundles a JavaScript or TypeScript project and its packages into one module, with esbuild.

mod inputs;
mod lines;
mod names;

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
/// The file in which esbuild lists the inputs of the bundle.
const METAFILE: &str = "inputs.json";

/// A part of esbuild's helper for asynchronous generators, and what replaces it. The helper tells a generator again to
/// return after each `await` of its `finally`, and so skips the rest of it. Only a delegate may be told again.
const RESUMES_RETURN: (&str, &str) = (r#"k === "return" ? k : "next""#, r#"k === "return" && v[1] ? k : "next""#);

/// Globals that a bundle has only if its code names them, and their files in `sdk/js/src/web/globals/named`.
const NAMED_GLOBALS: [(&str, &[&str]); 7] = [
    ("blob.js", &["Blob", "File", "FormData"]),
    ("buffer.js", &["Buffer"]),
    ("clone.js", &["structuredClone"]),
    ("crypto.js", &["crypto"]),
    ("fetch.js", &["Headers", "Request", "Response", "fetch"]),
    ("process.js", &["process"]),
    ("url.js", &["URL", "URLSearchParams"]),
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

/// A bundle: a module and its source map.
pub(super) struct Bundle {
    pub(super) file: PathBuf,
    map: String,
    /// The folders that names of sources are relative to.
    within: [PathBuf; 2],
}

impl Bundle {
    /// Returns the output of a program with the files and lines of the author in place of those of the bundle.
    pub(super) fn placed(&self, output: &str) -> String {
        let folder = self.file.parent().unwrap_or(Path::new(""));
        let within = self.within.each_ref().map(PathBuf::as_path);
        lines::placed(output, FILE, &self.map, folder, &within).unwrap_or_else(|_| output.to_owned())
    }
}

/// Bundles a project into a file in `out`. `root` is the folder of `--root`.
pub(super) fn bundle(project: &Project, main: &Path, root: &Path, out: &Path) -> Result<Bundle, CliError> {
    let within = [project.folder.clone(), root.to_owned()];
    let folders = within.each_ref().map(PathBuf::as_path);
    let sdk = sdk(project, root)?;
    let file = out.join(FILE);
    let failed = |error: &dyn std::error::Error| CliError::internal("cannot read the bundle").cause(&error.to_string());
    let globals = sdk.join("src/web/globals");
    let mut injected = vec![globals.join("always.js")];
    let metafile = out.join(METAFILE);
    let build = |injected: &[PathBuf]| {
        esbuild(project, main, &sdk, injected, &file, &metafile)?;
        let inputs = fs::read_to_string(&metafile).map_err(|error| failed(&error))?;
        inputs::check(&inputs, &project.folder, &folders)
    };
    let mut outside = build(&injected)?;
    let code = fs::read_to_string(&file).map_err(|error| failed(&error))?;
    let named = NAMED_GLOBALS.iter().filter(|(_, names)| names.iter().any(|name| has_word(&code, name)));
    injected.extend(named.map(|(file, _)| globals.join("named").join(file)));
    if injected.len() > 1 {
        outside = build(&injected)?;
    }
    let map = fs::read_to_string(out.join(format!("{FILE}.map"))).map_err(|error| failed(&error))?;
    let code = fs::read_to_string(&file).map_err(|error| failed(&error))?;
    let code = lines::without_paths(&code.replace(RESUMES_RETURN.0, RESUMES_RETURN.1), &outside);
    let mut code = names::with_names(&code);
    code.push_str(&lines::statement(&map, out, &folders).map_err(|error| failed(&error))?);
    fs::write(&file, code).map_err(|error| failed(&error))?;
    Ok(Bundle { file, map, within })
}

/// Runs esbuild. It puts the modules `injected` before all others. They give the global object its members, so that code
/// finds these under their names and in `globalThis`.
fn esbuild(
    project: &Project,
    main: &Path,
    sdk: &Path,
    injected: &[PathBuf],
    file: &Path,
    metafile: &Path,
) -> Result<(), CliError> {
    let mut command = ESBUILD.command(&project.folder)?;
    // Without `./`, a name that begins with `-` is an option, and one without a folder is a package.
    command.arg(Path::new(".").join(main)).args(["--bundle", "--format=esm", "--platform=browser", "--target=es2022"]);
    // The SDK's promises take the place of those of the engine, whose jobs nothing runs.
    command.args(["async-await", "async-generator", "for-await"].map(|feature| format!("--supported:{feature}=false")));
    command.args(["--external:flowcell:*", "--external:wasi:*"]);
    command.args(["--define:global=globalThis", "--define:process.env.NODE_ENV=\"production\""]);
    command.args(injected.iter().map(|file| format!("--inject:{}", file.display())));
    let own = |file: &str| sdk.join("src/web/globals").join(file).display().to_string();
    let there = NODE_MODULES.map(|name| (name, format!("@jspm/core/nodelibs/{name}")));
    let adapted = ADAPTED_MODULES.map(|(name, file)| (name, own(file)));
    let absent = ABSENT_MODULES.map(|name| (name, own("absent.cjs")));
    for (name, target) in there.into_iter().chain(adapted).chain(absent) {
        command.args([format!("--alias:{name}={target}"), format!("--alias:node:{name}={target}")]);
    }
    // One SDK for the code and the globals, also if the project has two copies.
    command.arg(format!("--alias:flowcell-sdk={}", sdk.join("index.js").display()));
    command.args(["--sourcemap=external", "--sources-content=false", "--log-level=warning"]);
    command.arg(format!("--outfile={}", file.display())).arg(format!("--metafile={}", metafile.display()));
    // An SDK outside of the project finds its packages in the project, too.
    command.env("NODE_PATH", project.folder.join("node_modules"));
    ESBUILD.output_of(command, || None)?;
    Ok(())
}

/// Returns whether a text has a word that is not a part of a longer name.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part))
}

/// Returns the folder of the SDK: the copy in the project, the installed package, or the one of this tree.
fn sdk(project: &Project, root: &Path) -> Result<PathBuf, CliError> {
    let folders = [
        project.folder.join("vendor/flowcell-sdk"),
        project.folder.join("node_modules/flowcell-sdk"),
        root.join("sdk/js"),
    ];
    let found = folders.iter().find(|folder| folder.join("src/web/globals/named/fetch.js").is_file());
    found.and_then(|folder| folder.canonicalize().ok()).ok_or_else(|| {
        CliError::wrong("the project has no SDK that can be bundled")
            .hint("copy `vendor/flowcell-sdk` of a project that `flowcell node new NAME --lang js` creates")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole_names() {
        for text in ["fetch", "globalThis.fetch", "x[\"fetch\"]", "{ fetch }", "refetch(fetch)", "fetch("] {
            assert!(has_word(text, "fetch"), "{text}");
        }
        for text in ["", "refetch", "fetched", "_fetch", "fetch$", "$fetch", "fétch", "fetch2"] {
            assert!(!has_word(text, "fetch"), "{text}");
        }
    }
}
