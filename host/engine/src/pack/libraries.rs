//! Takes the libraries out of a component, so that the engine compiles each of them once for all packs that have it. A
//! library is a core module that a toolchain links when a component is instantiated, such as the interpreter of Python.
//! Packs that a toolchain has built from one version of a library have the same bytes of it.

use std::ops::Range;

use wasm_encoder::{
    Component, ComponentImportSection, ComponentTypeRef, CoreTypeSection, EntityType, ModuleType, RawSection,
    reencode::{Reencode, RoundtripReencoder},
};
use wasmparser::{
    BinaryReader, BinaryReaderError, ComponentAlias, ComponentAliasSectionReader, ComponentExternalKind,
    ComponentImportSectionReader, ComponentOuterAliasKind, ComponentTypeRef as ImportType, ExternalKind, GlobalType,
    Instance, InstanceSectionReader, MemoryType, Parser, Payload, TableType, TagType, TypeRef,
};
use wasmtime::ResourcesRequired;

/// The smallest library that is taken out, in bytes. The import of a library costs about as much as a smaller one.
const MIN_LIBRARY_BYTES: usize = 64 << 10;
/// The custom section by which a linker finds what a library needs.
const LIBRARY_SECTION: &str = "dylink.0";

/// A component without its libraries.
pub(crate) struct Split<'a> {
    /// The component. It imports its libraries as core modules.
    pub(crate) component: Vec<u8>,
    /// The libraries, by the names of the imports.
    pub(crate) libraries: Vec<(String, &'a [u8])>,
    pub(crate) needs: Needs,
}

/// What an instance of a component needs at its start, over all its core modules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) memories: u32,
    pub(crate) tables: u32,
    /// The pages of the largest memory.
    pub(crate) memory_pages: u64,
    /// The elements of the largest table.
    pub(crate) table_elements: u64,
}

impl Needs {
    fn add(&mut self, other: Needs) {
        self.memories = self.memories.saturating_add(other.memories);
        self.tables = self.tables.saturating_add(other.tables);
        self.memory_pages = self.memory_pages.max(other.memory_pages);
        self.table_elements = self.table_elements.max(other.table_elements);
    }
}

impl From<ResourcesRequired> for Needs {
    fn from(required: ResourcesRequired) -> Needs {
        Needs {
            memories: required.num_memories,
            tables: required.num_tables,
            memory_pages: required.max_initial_memory_size.unwrap_or(0),
            table_elements: required.max_initial_table_size.unwrap_or(0),
        }
    }
}

/// Takes the libraries out of a valid component. Returns `None` if there are none, or if the component has parts that
/// would have to be changed, too: no toolchain makes those.
pub(crate) fn split(bytes: &[u8]) -> Option<Split<'_>> {
    let mut splitting = Splitting {
        bytes,
        output: Component::new(),
        libraries: Vec::new(),
        modules: Vec::new(),
        needs: Needs::default(),
    };
    let is_complete = splitting.run().ok()?;
    let Splitting { output, libraries, needs, .. } = splitting;
    (is_complete && !libraries.is_empty()).then(|| Split { component: output.finish(), libraries, needs })
}

/// The ids of sections of a component.
mod section {
    pub(super) const CORE_MODULE: u8 = 1;
    pub(super) const CORE_INSTANCE: u8 = 2;
    pub(super) const CORE_TYPE: u8 = 3;
    pub(super) const COMPONENT: u8 = 4;
    pub(super) const ALIAS: u8 = 6;
    pub(super) const IMPORT: u8 = 10;
}

struct Splitting<'a> {
    bytes: &'a [u8],
    output: Component,
    libraries: Vec<(String, &'a [u8])>,
    /// The needs of each core module, in the order of their indexes.
    modules: Vec<Needs>,
    needs: Needs,
}

impl<'a> Splitting<'a> {
    /// Copies the sections, and replaces libraries by imports. Returns false if the component cannot be split.
    fn run(&mut self) -> Result<bool, BinaryReaderError> {
        const HEADER: usize = 8;
        let Some(body) = self.bytes.get(HEADER..) else { return Ok(false) };
        let mut reader = BinaryReader::new(body, HEADER);
        while !reader.eof() {
            let id = reader.read_u8()?;
            let size = reader.read_var_u32()?;
            let at = reader.original_position();
            let data = reader.read_bytes(size as usize)?;
            if !self.section(id, data, at..at + data.len())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn section(&mut self, id: u8, data: &'a [u8], range: Range<usize>) -> Result<bool, BinaryReaderError> {
        let reader = || BinaryReader::new(data, range.start);
        let is_kept = match id {
            section::CORE_MODULE => {
                let module = CoreModule::read(data)?;
                self.modules.push(module.needs);
                if module.is_library && data.len() >= MIN_LIBRARY_BYTES {
                    return Ok(self.import(&module, data));
                }
                true
            }
            section::CORE_INSTANCE => {
                for instance in InstanceSectionReader::new(reader())? {
                    if let Instance::Instantiate { module_index, .. } = instance? {
                        let Some(needs) = self.modules.get(module_index as usize) else { return Ok(false) };
                        self.needs.add(*needs);
                    }
                }
                true
            }
            // Its types would get other indexes.
            section::CORE_TYPE => false,
            // It would have needs of its own.
            section::COMPONENT => Parser::new(0).parse_all(data).all(|payload| {
                !matches!(payload, Err(_) | Ok(Payload::ModuleSection { .. } | Payload::InstanceSection(_)))
            }),
            section::ALIAS => {
                let mut is_kept = true;
                for alias in ComponentAliasSectionReader::new(reader())? {
                    is_kept &= !matches!(
                        alias?,
                        ComponentAlias::InstanceExport { kind: ComponentExternalKind::Module, .. }
                            | ComponentAlias::Outer { kind: ComponentOuterAliasKind::CoreModule, .. }
                    );
                }
                is_kept
            }
            section::IMPORT => {
                let mut is_kept = true;
                for import in ComponentImportSectionReader::new(reader())? {
                    is_kept &= !matches!(import?.ty, ImportType::Module(_));
                }
                is_kept
            }
            _ => true,
        };
        self.output.section(&RawSection { id, data });
        Ok(is_kept)
    }

    /// Imports a library instead of defining it. Returns false if its type cannot be written.
    fn import(&mut self, module: &CoreModule<'_>, data: &'a [u8]) -> bool {
        let Some(module_type) = module.module_type() else { return false };
        let mut types = CoreTypeSection::new();
        types.ty().module(&module_type);
        let index = self.libraries.len();
        let name = format!("library-n{index}");
        let mut imports = ComponentImportSection::new();
        let Ok(type_index) = u32::try_from(index) else { return false };
        imports.import(name.as_str(), ComponentTypeRef::Module(type_index));
        self.output.section(&types).section(&imports);
        self.libraries.push((name, data));
        true
    }
}

/// The parts of a core module that its type consists of.
#[derive(Default)]
struct CoreModule<'a> {
    is_library: bool,
    needs: Needs,
    types: Vec<wasmparser::RecGroup>,
    imports: Vec<wasmparser::Import<'a>>,
    /// The type indexes of functions, those of imports first. The same holds for the other lists.
    functions: Vec<u32>,
    tables: Vec<TableType>,
    memories: Vec<MemoryType>,
    globals: Vec<GlobalType>,
    tags: Vec<TagType>,
    exports: Vec<wasmparser::Export<'a>>,
}

impl<'a> CoreModule<'a> {
    fn read(bytes: &'a [u8]) -> Result<CoreModule<'a>, BinaryReaderError> {
        let mut module = CoreModule::default();
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::CustomSection(section) => module.is_library |= section.name() == LIBRARY_SECTION,
                Payload::TypeSection(types) => module.types = types.into_iter().collect::<Result<_, _>>()?,
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        let import = import?;
                        module.define(import.ty);
                        module.imports.push(import);
                    }
                }
                Payload::FunctionSection(functions) => {
                    for index in functions {
                        module.functions.push(index?);
                    }
                }
                Payload::TableSection(tables) => {
                    for table in tables {
                        let table = table?.ty;
                        module.needs.add(Needs { tables: 1, table_elements: table.initial, ..Needs::default() });
                        module.tables.push(table);
                    }
                }
                Payload::MemorySection(memories) => {
                    for memory in memories {
                        let memory = memory?;
                        module.needs.add(Needs { memories: 1, memory_pages: memory.initial, ..Needs::default() });
                        module.memories.push(memory);
                    }
                }
                Payload::TagSection(tags) => {
                    for tag in tags {
                        module.tags.push(tag?);
                    }
                }
                Payload::GlobalSection(globals) => {
                    for global in globals {
                        module.globals.push(global?.ty);
                    }
                }
                Payload::ExportSection(exports) => module.exports = exports.into_iter().collect::<Result<_, _>>()?,
                // The sections that follow are not part of the type.
                Payload::StartSection { .. } | Payload::ElementSection(_) | Payload::CodeSectionStart { .. } => break,
                _ => {}
            }
        }
        Ok(module)
    }

    fn define(&mut self, defined: TypeRef) {
        match defined {
            TypeRef::Func(index) | TypeRef::FuncExact(index) => self.functions.push(index),
            TypeRef::Table(table) => self.tables.push(table),
            TypeRef::Memory(memory) => self.memories.push(memory),
            TypeRef::Global(global) => self.globals.push(global),
            TypeRef::Tag(tag) => self.tags.push(tag),
        }
    }

    fn module_type(&self) -> Option<ModuleType> {
        let mut encoder = RoundtripReencoder;
        let mut module_type = ModuleType::new();
        for group in &self.types {
            // Toolchains that link libraries write no recursive types.
            if group.is_explicit_rec_group() {
                return None;
            }
            for sub_type in group.types() {
                module_type.ty().subtype(&encoder.sub_type(sub_type.clone()).ok()?);
            }
        }
        for import in &self.imports {
            let imported: EntityType = encoder.entity_type(import.ty).ok()?;
            module_type.import(import.module, import.name, imported);
        }
        for export in &self.exports {
            let exported = encoder.entity_type(self.exported(export)?).ok()?;
            module_type.export(export.name, exported);
        }
        Some(module_type)
    }

    fn exported(&self, export: &wasmparser::Export<'_>) -> Option<TypeRef> {
        let index = export.index as usize;
        Some(match export.kind {
            ExternalKind::Func => TypeRef::Func(*self.functions.get(index)?),
            ExternalKind::FuncExact => return None,
            ExternalKind::Table => TypeRef::Table(*self.tables.get(index)?),
            ExternalKind::Memory => TypeRef::Memory(*self.memories.get(index)?),
            ExternalKind::Global => TypeRef::Global(*self.globals.get(index)?),
            ExternalKind::Tag => TypeRef::Tag(*self.tags.get(index)?),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use wasmtime::{
        Engine, Module, Store,
        component::{Component, Linker},
    };

    use super::*;

    /// A component whose module uses a library, and that has more definitions if they are given.
    fn component(library: &str, more: &str) -> Vec<u8> {
        let text = format!(
            r#"(component
                (core module $library {library}
                    (type (func (param i32) (result i32)))
                    (import "env" "memory" (memory 1))
                    (import "env" "base" (global i32))
                    (table (export "table") 3 funcref)
                    (global (export "mut") (mut i64) (i64.const 0))
                    (func (export "twice") (type 0) (i32.add (global.get 0) (i32.mul (local.get 0) (i32.const 2))))
                    (data (i32.const 0) "{}"))
                (core module $memory
                    (memory (export "memory") 2)
                    (global (export "base") i32 (i32.const 100)))
                (core module $main
                    (import "library" "twice" (func (param i32) (result i32)))
                    (func (export "run") (param i32) (result i32) (call 0 (local.get 0))))
                (core instance $env (instantiate $memory))
                (core instance $linked (instantiate $library (with "env" (instance $env))))
                (core instance $ran (instantiate $main (with "library" (instance $linked))))
                {more}
                (func (export "run") (param "n" u32) (result u32) (canon lift (core func $ran "run"))))"#,
            "x".repeat(MIN_LIBRARY_BYTES)
        );
        wat::parse_str(text).unwrap()
    }

    const LIBRARY: &str = r#"(@custom "dylink.0" (before first) "")"#;

    fn needs(component: &[u8]) -> Needs {
        Component::new(&Engine::default(), component).unwrap().resources_required().unwrap().into()
    }

    #[test]
    fn a_component_runs_with_its_libraries_beside_it() {
        let whole = component(LIBRARY, "");
        let split = split(&whole).unwrap();
        assert!(split.component.len() < 2_000, "{}", split.component.len());
        assert_eq!(split.needs, needs(&whole));
        assert_eq!(split.needs, Needs { memories: 1, tables: 1, memory_pages: 2, table_elements: 3 });
        let [(name, library)] = split.libraries.as_slice() else { panic!("{}", split.libraries.len()) };
        let engine = Engine::default();
        let mut linker = Linker::<()>::new(&engine);
        linker.root().module(name, &Module::new(&engine, library).unwrap()).unwrap();
        let mut store = Store::new(&engine, ());
        let instance = linker.instantiate(&mut store, &Component::new(&engine, &split.component).unwrap()).unwrap();
        let run = instance.get_typed_func::<(u32,), (u32,)>(&mut store, "run").unwrap();
        assert_eq!(run.call(&mut store, (21,)).unwrap(), (142,));
    }

    #[test]
    fn other_components_stay_whole() {
        for (library, more) in [
            ("", ""),
            (LIBRARY, "(core type (func))"),
            (LIBRARY, "(component (core module))"),
            (
                LIBRARY,
                r#"(component $i (core module $m) (export "m" (core module $m))) (instance $j (instantiate $i)) (alias export $j "m" (core module))"#,
            ),
        ] {
            let whole = component(library, more);
            assert!(needs(&whole).memories > 0 && split(&whole).is_none(), "{library} {more}");
        }
        assert!(
            split(b"\0asm").is_none() && split(b"").is_none() && split(&component(LIBRARY, "")[..60_000]).is_none()
        );
    }
}
