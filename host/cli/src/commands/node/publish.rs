//! `flowcell node push` and `pull`: transfers packs to and from registries.

use std::{collections::BTreeMap, fs, path::PathBuf};

use clap::{Args, ValueHint};
use flowcell::{
    Inspection,
    distribution::{Artifact, Wanted},
    packs::{InstallError, PackId, PackKey, Source, signature_file},
    vault::KeySource,
};

use super::registry::RegistryArgs;
use crate::{
    cli_error::{CliError, Exit},
    output::put_line,
    owner::block_on,
};

/// Arguments of `flowcell node push`.
#[derive(Args)]
pub(super) struct PushArgs {
    /// The file of the pack
    #[arg(value_name = "FILE.wasm", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The destination: ghcr.io/acme/greet, or a name in the default registry; the version is that of the pack
    #[arg(value_name = "REFERENCE")]
    reference: String,
    /// Sign the pack with this key, `env:NAME` or `file:PATH` [default: publish the signature FILE.wasm.sig, if it
    /// exists]
    #[arg(long, value_name = "KEY")]
    key: Option<KeySource>,
    #[command(flatten)]
    registry: RegistryArgs,
}

/// Arguments of `flowcell node pull`.
#[derive(Args)]
pub(super) struct PullArgs {
    /// The pack: a reference (ghcr.io/acme/greet@1.2.0), or a name in the default registry
    #[arg(value_name = "REFERENCE")]
    reference: String,
    /// Write the pack to this file [default: NAME.wasm]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,
    #[command(flatten)]
    registry: RegistryArgs,
}

pub(super) fn push(args: &PushArgs) -> Result<Exit, CliError> {
    let Source::Registry(reference) = args.registry.source(&args.reference)? else {
        return Err(missing_registry_error(&args.reference, "ghcr.io/acme/greet@1.2.0"));
    };
    let client = args.registry.pack_client()?;
    let arrival = block_on(client.fetch(&Source::File(args.file.clone())))??;
    let inspection = arrival.inspect()?;
    let id = PackId::of(&inspection.manifest);
    let reference = match &reference.wanted {
        Wanted::Highest => reference.with_wanted(Wanted::Version(id.version.clone())),
        Wanted::Version(version) if *version != id.version => {
            let problem = CliError::wrong(format!("the pack is {id}, not version {version}"));
            return Err(problem.hint("omit the version, or change it in the pack's manifest"));
        }
        Wanted::Digest(_) => {
            return Err(CliError::wrong("a pack cannot be pushed to a digest; name a version or nothing"));
        }
        _ => reference,
    };
    let signature = match &args.key {
        Some(key) => Some(PackKey::read(key)?.sign(&id, &inspection.digest)),
        None => arrival.signature,
    };
    if let Some(signature) = signature.filter(|signature| !signature.is_valid_for(&id, &inspection.digest)) {
        let why =
            format!("the signature {} by {} is for another pack", signature_file(&args.file).display(), signature.key);
        return Err(CliError::wrong(why).hint("sign this pack with `flowcell node sign`"));
    }
    let artifact = Artifact {
        bytes: arrival.bytes.into(),
        annotations: annotations(&inspection),
        imports: inspection.imports,
        exports: inspection.exports,
        ..Artifact::default()
    };
    block_on(client.push(&reference, artifact, signature))??;
    put_line(&reference.to_string())?;
    Ok(Exit::Good)
}

pub(super) fn pull(args: &PullArgs) -> Result<Exit, CliError> {
    let source @ Source::Registry(_) = args.registry.source(&args.reference)? else {
        return Err(missing_registry_error(&args.reference, "ghcr.io/acme/greet@1.2.0"));
    };
    let arrival = block_on(args.registry.pack_client()?.fetch(&source))??;
    let name = arrival.inspect()?.manifest.name;
    let out = args.out.clone().unwrap_or_else(|| format!("{name}.wasm").into());
    let write =
        |path: PathBuf, bytes: &[u8]| fs::write(&path, bytes).map_err(|source| InstallError::Write { path, source });
    write(out.clone(), &arrival.bytes)?;
    if let Some(signature) = arrival.signature {
        write(signature_file(&out), format!("{signature}\n").as_bytes())?;
    }
    put_line(&out.display().to_string())?;
    Ok(Exit::Good)
}

/// Returns the error of a text that is not a reference, with an example of one.
pub(super) fn missing_registry_error(text: &str, example: &str) -> CliError {
    CliError::wrong(format!("`{text}` is not a reference to a registry"))
        .hint(format!("write a reference such as {example}"))
}

/// Returns the members of the manifest for people under the standard names of OCI annotations, as far as these exist.
fn annotations(inspection: &Inspection) -> BTreeMap<String, String> {
    let manifest = &inspection.manifest;
    let said = [
        ("title", Some(manifest.name.to_string())),
        ("version", Some(manifest.version.to_string())),
        ("licenses", manifest.license.clone()),
        ("description", manifest.description.clone()),
        ("url", manifest.homepage.clone()),
        ("source", manifest.repository.clone()),
        ("documentation", manifest.docs.clone()),
    ];
    let named = |(name, value): (&str, Option<String>)| Some((format!("org.opencontainers.image.{name}"), value?));
    said.into_iter().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell::{Manifest, contract::Digest};

    use super::*;

    #[test]
    fn annotations_have_standard_names() {
        let manifest = "{ name: acme, version: 1.2.3, license: MIT, description: Greets., docs: 'https://a.example/d',
            homepage: 'https://a.example', repository: 'https://a.example/git', nodes: [] }";
        let (imports, exports) = (Vec::new(), Vec::new());
        let manifest = Manifest::parse(manifest).unwrap();
        let inspection = Inspection { manifest, readme: None, digest: Digest("0".into()), size: 1, imports, exports };
        let sent: Vec<_> = annotations(&inspection).into_iter().collect();
        let expected = [
            ("description", "Greets."),
            ("documentation", "https://a.example/d"),
            ("licenses", "MIT"),
            ("source", "https://a.example/git"),
            ("title", "acme"),
            ("url", "https://a.example"),
            ("version", "1.2.3"),
        ];
        let named = |(name, value): (&str, &str)| (format!("org.opencontainers.image.{name}"), value.to_owned());
        assert_eq!(sent, expected.map(named));
    }
}
