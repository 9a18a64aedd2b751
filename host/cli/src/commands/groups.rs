//! The help of the program: its commands in groups, and an example at the top of each command's help.

use clap::{Command, CommandFactory};

use super::{Arguments, flow};

/// The groups of the front page with their commands.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Run and test flows",
        &[
            "init",
            "run",
            "dev",
            "test",
            "validate",
            "fmt",
            "lsp",
            "import",
            "inspect",
            "graph",
            "explain",
            "eval",
            "flows",
            "nodes",
            "functions",
            "schema",
        ],
    ),
    ("Show and control runs", &["runs", "jobs", "answer", "emit", "send", "chat"]),
    ("Use a server elsewhere", &["login", "logout", "whoami", "api"]),
    ("Write nodes", &["node"]),
    (
        "Operate",
        &[
            "serve",
            "console",
            "mcp",
            "drive",
            "reload",
            "packs",
            "trigger",
            "store",
            "tenant",
            "token",
            "account",
            "audit",
            "secret",
            "credential",
            "forms",
            "files",
            "completions",
            "help",
        ],
    ),
];

/// One example for each command.
const EXAMPLES: &[&str] = &[
    "init shop --example triage",
    "run order.yaml -i amount=200",
    "dev order.yaml -- -i amount=200",
    "test order.yaml",
    "validate order.yaml",
    "fmt order.yaml --short",
    "lsp --packs packs",
    "import order.asl.json --out flows",
    "inspect logo.flow.js",
    "graph order.yaml --format svg",
    "explain order.yaml pay",
    "eval '{{ pay.body.total | round(2) }}' --run order-7 --task ship",
    "flows create order.yaml",
    "flows push order.yaml --store postgres://…",
    "flows list",
    "flows show order --version 1",
    "flows versions order",
    "flows run order -i amount=200",
    "flows runs order --limit 5",
    "flows delete order",
    "nodes control.foreach",
    "functions round",
    "schema > flow.schema.json",
    "runs list --status failed --since 1h",
    "runs show order-7 pay",
    "runs watch order-7",
    "runs events order-7 --from 10",
    "runs resume order-7 --answer approve=yes",
    "runs retry order-7 --flow-version latest --check",
    "runs migrate order-7 --to latest --check",
    "runs resolve order-7 pay --repeat",
    "runs cancel order-7",
    "runs export order-7 --out order-7.json",
    "runs gc --older-than 30d",
    "runs delete order-7",
    "runs label order-7 --set team=billing --remove tier",
    "runs bulk cancel --status parked -l team=billing --preview",
    "runs bulk resume --status parked --flow order",
    "runs bulk retry --status failed --since 1h --yes",
    "runs bulk answer approve yes --flow order --status parked",
    "runs bulk delete --status succeeded --before 30d",
    "runs bulk label --set team=billing --remove tier --flow order",
    "runs bulk migrate --to 3 --flow order --status parked --preview",
    "jobs list",
    "jobs show 019ab3f4c5d6a1b2c3d4e5f6",
    "jobs pause 019ab3f4c5d6a1b2c3d4e5f6",
    "jobs resume 019ab3f4c5d6a1b2c3d4e5f6",
    "jobs cancel 019ab3f4c5d6a1b2c3d4e5f6",
    "answer order-7 approve yes",
    "emit order-7 paid '{\"amount\": 200}'",
    "send order-7 'Please hurry' --to assistant",
    "chat order-7",
    "node new shop --lang rust",
    "node build",
    "node test --only greet",
    "node run shop.greet -i name=Ada --packs dist",
    "node bench shop.greet -i name=Ada --packs dist",
    "node profile shop.greet -i name=Ada --packs dist --out greet.svg",
    "node fuzz shop.greet --packs dist --seed 7",
    "node docs shop.greet --packs dist",
    "node inspect dist/shop.wasm",
    "node search weather --index index.json",
    "node index build dist/shop.wasm --out index.json",
    "node index push index.json ghcr.io/acme/packs",
    "node conformance dist/shop.wasm",
    "node install ghcr.io/acme/shop@0.1.0",
    "node uninstall shop",
    "node push dist/shop.wasm ghcr.io/acme/shop",
    "node pull ghcr.io/acme/shop@0.1.0 --out shop.wasm",
    "node keygen acme.key",
    "node sign dist/shop.wasm --key file:acme.key",
    "serve --listen 127.0.0.1:7171",
    "console --tenant acme --open",
    "login https://flows.example.com",
    "logout",
    "whoami",
    "api GET '/v1/runs?status=failed' --paginate",
    "mcp --flows flows --state .flowcell-mcp",
    "drive --once",
    "reload",
    "packs push shop --store postgres://…",
    "packs list --store postgres://…",
    "packs remove shop@0.1.0 --store postgres://…",
    "trigger create order morning --cron '0 7 * * 1-5' --time-zone Europe/Berlin",
    "trigger list",
    "trigger show order morning",
    "trigger enable order morning",
    "trigger disable order morning",
    "trigger delete order morning",
    "trigger fire order morning",
    "store migrate",
    "store check",
    "store compact",
    "store copy .flowcell postgres://localhost/flowcell",
    "store backup backups/monday",
    "tenant create acme",
    "tenant list",
    "tenant policy acme --set acme.yaml",
    "tenant usage acme",
    "tenant export acme acme-export",
    "tenant disable acme --stop",
    "tenant delete acme --yes --certificate acme-removed.json",
    "tenant enable acme",
    "token create acme --expires 90d",
    "token list",
    "token revoke 5be0c1f2",
    "account list --tenant acme",
    "account disable 9f86d081884c7d659a2feaa0c55ad015",
    "account enable 9f86d081884c7d659a2feaa0c55ad015",
    "account delete 9f86d081884c7d659a2feaa0c55ad015",
    "audit list acme --limit 20",
    "audit verify acme",
    "completions bash > flowcell.bash",
    "help runs show",
    "secret set api-token --for https://api.example.com < token.txt",
    "secret list",
    "secret rm api-token",
    "secret reset --tenant acme",
    "secret rotate-key",
    "credential set shop --kind bearer --for https://api.example.com < token.txt",
    "credential list",
    "credential show shop",
    "credential remove shop",
    "credential connect drive --port 8765",
    "forms link order --expires 14d --uses 20",
    "forms list",
    "forms revoke 3f9c1b20a7d4e856",
    "files put photo.png",
    "files get 0f3a… --out photo.png",
    "files list",
    "files rm 0f3a…",
];

/// Options that a command accepts but does not use, so its help does not show them. Scripts that set them go on
/// working.
const UNUSED_OPTIONS: &[(&[&str], &[&str])] = &[
    (
        &["nodes ", "schema ", "packs list ", "runs show ", "runs events ", "runs export ", "tenant export "],
        &[
            "allow_private",
            "files",
            "max_http_file",
            "max_node_memory",
            "max_large_nodes",
            "max_node_output",
            "max_node_timeout",
            "providers",
            "mcp",
            "secrets",
            "secret_key",
            "services",
            "simulate",
        ],
    ),
    (
        &["validate ", "graph ", "explain ", "eval ", "inspect ", "lsp ", "flows create "],
        &["allow_private", "files", "max_http_file", "max_large_nodes", "secret_key"],
    ),
    (
        &["credential connect "],
        &[
            "packs",
            "files",
            "max_node_memory",
            "max_large_nodes",
            "max_node_output",
            "max_node_timeout",
            "providers",
            "mcp",
            "secrets",
            "services",
            "simulate",
        ],
    ),
];

/// Returns the clap command of the program with its whole help: the commands in groups, and an example for each
/// command.
pub(super) fn command() -> Command {
    let command = commands();
    let page = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}{{after-help}}",
        listed(&command)
    );
    command.help_template(page).mut_args(|arg| {
        let is_of_agents = arg.get_help_heading() == Some(flow::HEADING);
        arg.hide(is_of_agents)
    })
}

/// Returns the clap command of the program with an example for each command, without a front page.
pub(super) fn commands() -> Command {
    with_examples(Arguments::command(), "")
}

/// Adds an example to the help of each command without subcommands, at and below `command`. `path` has the names of the
/// commands down to `command`, each followed by a space, such as `runs show `.
fn with_examples(command: Command, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let command = names.iter().fold(command, |command, name| {
        let path = format!("{path}{name} ");
        command.mut_subcommand(name, |below| with_examples(below, &path))
    });
    let unused = UNUSED_OPTIONS.iter().filter(|(paths, _)| paths.contains(&path)).flat_map(|(_, options)| *options);
    let command = unused.fold(command, |command, option| command.mut_arg(option, |arg| arg.hide(true)));
    match example(path) {
        Some(example) if !command.has_subcommands() => command.before_help(format!("Example: flowcell {example}")),
        _ => command,
    }
}

/// Returns the example of the command with this path, such as `runs show `, which ends with a space.
pub(super) fn example(path: &str) -> Option<&'static str> {
    EXAMPLES.iter().find(|example| **example == path.trim_end() || example.starts_with(path)).copied()
}

/// Lists the commands by group, each with its short description.
fn listed(command: &Command) -> String {
    let about = |name: &str| {
        let below = command.find_subcommand(name);
        below.and_then(Command::get_about).map(ToString::to_string).unwrap_or_default()
    };
    let line = |name: &&str| format!("  {name:<13}{}\n", about(name));
    let group =
        |(title, names): &(&str, &[&str])| format!("{title}:\n{}\n", names.iter().map(line).collect::<String>());
    GROUPS.iter().map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `visit` with the path of every visible command.
    fn each_visible_command(command: &Command, path: &str, visit: &mut impl FnMut(&str)) {
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            let path = format!("{path}{} ", below.get_name());
            if below.has_subcommands() { each_visible_command(below, &path, visit) } else { visit(&path) }
        }
    }

    #[test]
    fn every_command_has_an_example_and_every_example_a_command() {
        let mut paths = Vec::new();
        each_visible_command(&Arguments::command(), "", &mut |path| paths.push(path.to_owned()));
        for path in &paths {
            assert!(example(path).is_some(), "{path}has no example");
        }
        for example in EXAMPLES {
            let is_known = paths.iter().any(|path| example.starts_with(&**path) || *example == path.trim_end());
            assert!(is_known, "`{example}` is an example of no command");
        }
    }

    #[test]
    fn every_unused_option_is_hidden_from_the_help_of_its_command() {
        let command = command();
        for (paths, options) in UNUSED_OPTIONS {
            for path in *paths {
                let below = path.split_whitespace().try_fold(&command, |command, name| command.find_subcommand(name));
                let below = below.unwrap_or_else(|| panic!("`{path}` is no command"));
                for option in *options {
                    let arg = below.get_arguments().find(|arg| arg.get_id() == option);
                    assert!(arg.is_some_and(clap::Arg::is_hide_set), "{path}{option}");
                }
            }
        }
    }

    #[test]
    fn every_command_is_in_one_group() {
        let command = Arguments::command();
        let grouped = |name: &str| GROUPS.iter().filter(|(_, names)| names.contains(&name)).count();
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            assert_eq!(grouped(below.get_name()), 1, "{}", below.get_name());
        }
        let names: usize = GROUPS.iter().map(|(_, names)| names.len()).sum();
        assert_eq!(names, command.get_subcommands().filter(|below| !below.is_hide_set()).count());
    }
}
