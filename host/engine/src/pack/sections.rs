//! The parts of a component file that the engine reads before it compiles the component.

use std::ops::Range;

use wasm_encoder::{ComponentSection, CustomSection};
use wasmparser::{Encoding, Instance, Parser, Payload, Validator, WasmFeatures};

use super::PackErrorKind;

/// The custom section that holds a manifest, in the component or in one of its core modules.
pub(super) const MANIFEST_SECTION: &str = "flowcell:manifest";
/// The custom section of a component that holds the pack's README, as Markdown.
const README_SECTION: &str = "flowcell:readme";

/// The custom sections of a component, as [`Sections::read`] finds them.
#[derive(Clone, Debug, Default)]
pub(super) struct Sections {
    /// The byte ranges of the manifests.
    pub(super) manifests: Vec<Range<usize>>,
    /// The byte ranges of the READMEs of the component itself.
    pub(super) readmes: Vec<Range<usize>>,
    /// The imports of the component itself, without those of nested components.
    pub(super) imports: Vec<String>,
    /// The exports of the component itself, without those of nested components.
    pub(super) exports: Vec<String>,
    /// The number of instantiations of core modules, at any depth.
    pub(super) core_instances: usize,
}

impl Sections {
    /// Walks over the component and everything nested in it.
    pub(super) fn read(bytes: &[u8]) -> Result<Sections, PackErrorKind> {
        let refuse = |error: wasmparser::BinaryReaderError| PackErrorKind::NotAComponent(error.to_string());
        if bytes.starts_with(b"\x7fELF") {
            let why = "it is native code, which the host never accepts; give it the component, which it compiles \
                       itself";
            return Err(PackErrorKind::NotAComponent(why.into()));
        }
        if !bytes.starts_with(b"\0asm") {
            return Err(PackErrorKind::NotAComponent("it does not begin like a WebAssembly file".into()));
        }
        let mut sections = Sections::default();
        let mut depth = 0_usize;
        for payload in Parser::new(0).parse_all(bytes) {
            let payload = payload.map_err(refuse)?;
            match &payload {
                Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                    return Err(PackErrorKind::NotAComponent("it is a core module; build for wasm32-wasip2".into()));
                }
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                _ => sections.add_payload(&payload, depth).map_err(refuse)?,
            }
        }
        Ok(sections)
    }

    fn add_payload(&mut self, payload: &Payload<'_>, depth: usize) -> wasmparser::Result<()> {
        match payload {
            Payload::CustomSection(section) if section.name() == MANIFEST_SECTION => {
                let start = section.data_offset();
                self.manifests.push(start..start + section.data().len());
            }
            Payload::CustomSection(section) if section.name() == README_SECTION && depth == 0 => {
                let start = section.data_offset();
                self.readmes.push(start..start + section.data().len());
            }
            Payload::ComponentImportSection(imports) if depth == 0 => {
                for import in imports.clone() {
                    self.imports.push(import?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(exports) if depth == 0 => {
                for export in exports.clone() {
                    self.exports.push(export?.name.name.to_owned());
                }
            }
            Payload::InstanceSection(instances) => {
                for instance in instances.clone() {
                    self.core_instances += usize::from(matches!(instance?, Instance::Instantiate { .. }));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns the component with a manifest as its last section.
pub(super) fn with_manifest(component: Vec<u8>, manifest: &str) -> Vec<u8> {
    with_section(component, MANIFEST_SECTION, manifest)
}

/// Returns the component with a README as its last section.
pub(super) fn with_readme(component: Vec<u8>, readme: &str) -> Vec<u8> {
    with_section(component, README_SECTION, readme)
}

fn with_section(mut component: Vec<u8>, name: &str, text: &str) -> Vec<u8> {
    let section = CustomSection { name: name.into(), data: text.as_bytes().into() };
    section.append_to_component(&mut component);
    component
}

/// Validates every byte, so that a bad component is refused now and not when a flow first needs it.
pub(crate) fn validate(bytes: &[u8]) -> Result<(), PackErrorKind> {
    // Component-model async is off here because the engine runs without it.
    let features = (WasmFeatures::default() | WasmFeatures::COMPONENT_MODEL).difference(WasmFeatures::CM_ASYNC);
    Validator::new_with_features(features).validate_all(bytes).map(|_| ()).map_err(|error| {
        let hint = if error.message().contains("async") { "; build it without component-model async" } else { "" };
        PackErrorKind::NotAComponent(format!("{error}{hint}"))
    })
}
