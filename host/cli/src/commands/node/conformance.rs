//! `flowcell node conformance`: checks the rules for packs of every author and language.

mod check;
mod report;
mod runs;

use std::{fs, path::PathBuf, time::Duration};

use clap::{Args, ValueHint};
use flowcell::{
    Inspection, PackErrorKind,
    packs::{Arrival, InstallError, Source},
};

use self::{
    check::{Check, Findings},
    runs::Trials,
};
use super::test::TestHost;
use crate::{
    cli_error::{CliError, Exit},
    options::PackArgs,
    owner::block_on,
};

/// Arguments of `flowcell node conformance`.
#[derive(Args)]
pub(super) struct ConformanceArgs {
    /// The file of the pack
    #[arg(value_name = "FILE.wasm", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Use the cases in this folder, too: they give examples the grants and replies that they need
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    cases: Option<PathBuf>,
    /// The seed of the generated inputs; the same seed gives the same inputs
    #[arg(long, value_name = "N", default_value = "0")]
    seed: u64,
    /// The number of generated inputs for each node type, 0 to 10000
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    rounds: u64,
    /// The number of events of a run after which it is cut, and cancelled, spread over all, 0 to 1000
    #[arg(long, value_name = "N", default_value = "12", value_parser = clap::value_parser!(u16).range(0..=1_000))]
    cuts: u16,
    /// The real time of one run in milliseconds, 1 to 60000
    #[arg(long, value_name = "MS", default_value = "5000", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout_ms: u64,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    packs: PackArgs,
}

pub(super) fn execute(args: &ConformanceArgs) -> Result<Exit, CliError> {
    let shown = args.file.display();
    let bytes =
        fs::read(&args.file).map_err(|error| CliError::wrong(format!("cannot read {shown}")).because(&error))?;
    let mut findings = Findings::default();
    let arrival = Arrival { source: Source::File(args.file.clone()), bytes, signature: None };
    let inspection = match arrival.inspect() {
        Ok(inspection) => inspection,
        Err(InstallError::Refused { source, .. }) => {
            let is_about_code = matches!(
                source,
                PackErrorKind::Import(_)
                    | PackErrorKind::NoNode
                    | PackErrorKind::NotAComponent(_)
                    | PackErrorKind::TooMany { .. }
                    | PackErrorKind::TooLarge { .. }
            );
            let check = if is_about_code { Check::Imports } else { Check::Manifest };
            findings.fail(check, &shown.to_string(), source.to_string());
            return conclude(args, None, &findings);
        }
        Err(error) => return Err(error.into()),
    };
    let host = TestHost::build(args.packs.builder().packs(&args.file))?;
    check_manifest(&inspection, &mut findings);
    if check_code(&host, &inspection, &mut findings) {
        let trials = Trials {
            host: &host.host,
            manifest: &inspection.manifest,
            cases: args.cases.as_deref(),
            seed: args.seed,
            rounds: args.rounds,
            cuts: args.cuts.into(),
            limit: Duration::from_millis(args.timeout_ms),
        };
        block_on(trials.perform(&mut findings))??;
    }
    conclude(args, Some(&inspection), &findings)
}

fn conclude(args: &ConformanceArgs, inspection: Option<&Inspection>, findings: &Findings) -> Result<Exit, CliError> {
    report::print(args, inspection, findings)?;
    Ok(if findings.is_good() { Exit::Good } else { Exit::Failed })
}

/// Checks the texts for people and the failure codes of the manifest. A host has accepted it already.
fn check_manifest(inspection: &Inspection, findings: &mut Findings) {
    let manifest = &inspection.manifest;
    findings.try_one(Check::Manifest);
    let missing = [
        ("license", manifest.license.is_none()),
        ("description", manifest.description.is_none()),
        ("README", inspection.readme.is_none()),
    ];
    for (name, _) in missing.into_iter().filter(|(_, is_missing)| *is_missing) {
        findings.note(Check::Manifest, &manifest.name, format!("the pack has no {name}"));
    }
    for node in &manifest.nodes {
        findings.try_one(Check::Manifest);
        for error in node.errors.iter().filter(|error| !check::is_code(&error.code)) {
            findings.fail(
                Check::Manifest,
                &node.name,
                format!("the failure code `{}` is not in snake_case", error.code),
            );
        }
    }
}

/// Compiles the pack, and compares its imports with its requests. Returns whether the pack can run.
fn check_code(host: &TestHost, inspection: &Inspection, findings: &mut Findings) -> bool {
    let manifest = &inspection.manifest;
    for import in &inspection.imports {
        findings.try_one(Check::Imports);
        let capability = import.strip_prefix("flowcell:host/").and_then(|rest| rest.split('@').next());
        let Some(capability) = capability.filter(|name| flowcell::contract::BuiltIn::named(name).is_some()) else {
            continue;
        };
        let is_asked =
            manifest.nodes.iter().flat_map(|node| &node.capabilities).any(|asked| *asked.name == *capability);
        if !is_asked {
            let note = format!("it imports `{capability}`, for which no node type asks: calls of it are denied");
            findings.note(Check::Imports, &manifest.name, note);
        }
    }
    match host.host.prepare(&inspection.digest) {
        Ok(()) => true,
        Err(failure) => {
            findings.fail(Check::Imports, &manifest.name, format!("it cannot be compiled: {failure}"));
            false
        }
    }
}
