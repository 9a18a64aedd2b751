//! Checks that the modules of a crate do not import each other in a cycle. It compares the modules that stand in one
//! folder. Each of them stands for all modules below it, too.
//!
//! If a name is re-exported, the module that defines it counts. Imports between parent and child are allowed.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use syn::{Item, UseTree, visit::Visit};

/// The path of a module from the root of its crate.
type Module = Vec<String>;

/// The meaning of a name in a module.
#[derive(Clone, Debug)]
enum Name {
    /// The module defines the name.
    Own,
    /// The module imports the name from this path, relative to itself.
    Import(Vec<String>),
}

#[derive(Debug, Default)]
struct Contents {
    names: BTreeMap<String, Name>,
    /// The paths of `use …::*`.
    globs: Vec<Vec<String>>,
    /// All paths in the module's code.
    paths: BTreeSet<Vec<String>>,
}

#[derive(Default)]
struct Crate {
    modules: BTreeMap<Module, Contents>,
}

impl Crate {
    /// Reads the module of a file, and the modules that it declares.
    fn read(&mut self, file: &Path, module: &Module) {
        let text = fs::read_to_string(file).unwrap();
        let source = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let is_root = module.is_empty();
        let folder = if is_root { file.parent().unwrap().to_owned() } else { file.with_extension("") };
        self.modules.entry(module.clone()).or_default();
        self.read_items(&source.items, module, &folder);
    }

    fn read_items(&mut self, items: &[Item], module: &Module, folder: &Path) {
        for item in items {
            let is_test = attributes(item).iter().any(|attribute| {
                attribute.path().is_ident("cfg")
                    && attribute.parse_args::<syn::Ident>().is_ok_and(|name| name == "test")
            });
            if is_test {
                continue;
            }
            if let Item::Mod(child) = item {
                let path = [module.as_slice(), &[child.ident.to_string()]].concat();
                self.contents_of(module).names.insert(child.ident.to_string(), Name::Own);
                match &child.content {
                    Some((_, items)) => {
                        self.modules.entry(path.clone()).or_default();
                        self.read_items(items, &path, &folder.join(child.ident.to_string()));
                    }
                    None => self.read(&module_file(child, folder), &path),
                }
                continue;
            }
            if let Item::Use(import) = item {
                self.add_use_tree(&import.tree, module, Vec::new());
                continue;
            }
            let contents = self.contents_of(module);
            contents.names.extend(defined_name(item).map(|name| (name, Name::Own)));
            Paths(&mut contents.paths).visit_item(item);
        }
    }

    fn contents_of(&mut self, module: &Module) -> &mut Contents {
        self.modules.get_mut(module).unwrap()
    }

    fn add_use_tree(&mut self, tree: &UseTree, module: &Module, mut path: Vec<String>) {
        let contents = self.contents_of(module);
        match tree {
            UseTree::Path(step) => {
                path.push(step.ident.to_string());
                self.add_use_tree(&step.tree, module, path);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_use_tree(tree, module, path.clone())),
            UseTree::Glob(_) => contents.globs.push(path),
            UseTree::Name(name) if name.ident == "self" => contents.add_import(path.last().unwrap().clone(), path),
            UseTree::Name(name) => {
                path.push(name.ident.to_string());
                contents.add_import(name.ident.to_string(), path);
            }
            UseTree::Rename(rename) => {
                if rename.ident != "self" {
                    path.push(rename.ident.to_string());
                }
                contents.add_import(rename.rename.to_string(), path);
            }
        }
    }

    /// Returns the module that defines the item at a path; `None` if another crate defines it.
    fn find_definer(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        if depth > 16 {
            return None;
        }
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => Vec::new(),
            "self" => from.clone(),
            "super" => from[..from.len().checked_sub(1)?].to_vec(),
            name => return self.find_named(from, name, rest, depth),
        };
        match rest.split_first() {
            None => Some(start),
            Some((next, _)) if next == "super" => self.find_definer(&start, rest, depth),
            Some((next, rest)) => self.find_named(&start, next, rest, depth),
        }
    }

    /// Returns the module that defines the item at the path `name::rest`, as seen from `module`; `None` if there is
    /// none in this crate.
    fn find_named(&self, module: &Module, name: &str, rest: &[String], depth: usize) -> Option<Module> {
        let contents = self.modules.get(module)?;
        let child = [module.as_slice(), &[name.to_owned()]].concat();
        match contents.names.get(name) {
            Some(Name::Own) if self.modules.contains_key(&child) => match rest.split_first() {
                None => Some(child),
                Some((next, rest)) => self.find_named(&child, next, rest, depth).or(Some(child)),
            },
            Some(Name::Own) => Some(module.clone()),
            Some(Name::Import(path)) => self.find_definer(module, &[path.as_slice(), rest].concat(), depth + 1),
            None => contents.globs.iter().find_map(|glob| {
                let path = [glob.as_slice(), &[name.to_owned()], rest].concat();
                self.find_definer(module, &path, depth + 1)
            }),
        }
    }

    /// Returns the modules from which a module imports, except its own ancestors and descendants.
    fn imported_modules(&self, module: &Module) -> BTreeSet<Module> {
        let contents = &self.modules[module];
        let imports = contents.names.values().filter_map(|name| match name {
            Name::Import(path) => Some(path),
            Name::Own => None,
        });
        let paths = imports.chain(&contents.globs).chain(&contents.paths);
        let mut found: BTreeSet<_> = paths.filter_map(|path| self.find_definer(module, path, 0)).collect();
        found.retain(|other| !other.starts_with(module) && !module.starts_with(other));
        found
    }

    /// Returns for each folder the imports between its modules.
    fn imports_by_folder(&self) -> BTreeMap<Module, Level> {
        let mut levels: BTreeMap<Module, Level> = BTreeMap::new();
        for module in self.modules.keys() {
            for other in self.imported_modules(module) {
                let shared = module.iter().zip(&other).take_while(|(one, other)| one == other).count();
                let level = levels.entry(module[..shared].to_vec()).or_default();
                let takes = level.entry(module[shared].clone()).or_default().entry(other[shared].clone()).or_default();
                takes.insert(format!("{} takes from {}", module.join("::"), other.join("::")));
            }
        }
        levels
    }
}

/// The imports between the modules of a folder. The outer key is the importing module, the inner key the module that it
/// imports from. The values are the imports as texts, such as `a::b takes from c`.
type Level = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

impl Contents {
    fn add_import(&mut self, name: String, path: Vec<String>) {
        self.paths.insert(path.clone());
        self.names.insert(name, Name::Import(path));
    }
}

/// Collects the paths with more than one part.
struct Paths<'a>(&'a mut BTreeSet<Vec<String>>);

impl Visit<'_> for Paths<'_> {
    fn visit_path(&mut self, path: &syn::Path) {
        if path.segments.len() > 1 {
            self.0.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }

    /// Reads the tokens of a macro call, which are not parsed code. Words that `::` joins count as a path.
    fn visit_macro(&mut self, call: &syn::Macro) {
        let text = call.tokens.to_string().replace(" :: ", "::");
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
        for word in text.split(|c: char| !is_word(c)).filter(|word| word.contains("::")) {
            self.0.insert(word.split("::").map(str::to_owned).collect());
        }
        syn::visit::visit_macro(self, call);
    }
}

fn attributes(item: &Item) -> &[syn::Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        _ => &[],
    }
}

fn defined_name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(name.to_string())
}

fn module_file(module: &syn::ItemMod, folder: &Path) -> PathBuf {
    let path = module.attrs.iter().find(|attribute| attribute.path().is_ident("path"));
    assert!(path.is_none(), "`#[path]` hides where a module is: {}", module.ident);
    let name = module.ident.to_string();
    let name = name.trim_start_matches("r#");
    let beside = folder.join(format!("{name}.rs"));
    if beside.is_file() { beside } else { folder.join(name).join("mod.rs") }
}

/// Returns the groups of modules in which each module imports every other one, directly or through others.
fn cycles(edges: &Level) -> BTreeSet<Vec<String>> {
    let reach = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from.clone()];
        while let Some(module) = open.pop() {
            for next in edges.get(&module).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<_, _> = edges.keys().map(|module| (module.clone(), reach(module))).collect();
    let in_cycles = reached.iter().filter(|(module, targets)| targets.contains(*module));
    let cycle = |(module, targets): (&String, &BTreeSet<String>)| {
        let back = |other: &&String| reached.get(*other).is_some_and(|back| back.contains(module));
        targets.iter().filter(back).cloned().collect()
    };
    in_cycles.map(cycle).collect()
}

/// Returns the root files of all crates.
fn crates() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folders = ["host", "nodes", "nodes/examples"].map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let mut found: Vec<_> = folders.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    found.extend(["sdk/expr", "sdk/rust"].map(|folder| root.join(folder)));
    let roots = found.iter().flat_map(|folder| ["src/lib.rs", "src/main.rs"].map(|file| folder.join(file)));
    let mut roots: Vec<_> = roots.filter(|root| root.is_file()).collect();
    roots.sort();
    roots
}

/// Returns the cycles of a crate. Each has the path of the folder, and the imports that form the cycle, one a line.
fn cycles_of(root: &Path) -> Vec<(String, String)> {
    let mut code = Crate::default();
    code.read(root, &Vec::new());
    let mut found = Vec::new();
    for (level, edges) in code.imports_by_folder() {
        for cycle in cycles(&edges) {
            let takes = |module| edges[module].iter().filter(|(other, _)| cycle.contains(other));
            let lines = cycle.iter().flat_map(takes).flat_map(|(_, takes)| takes);
            found.push((level.join("::"), lines.map(|line| format!("\n  {line}")).collect()));
        }
    }
    found
}

#[test]
fn modules_do_not_import_each_other_in_a_ring() {
    let house = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut told = String::new();
    for root in crates() {
        let name = root.strip_prefix(house).unwrap().to_str().unwrap().to_owned();
        for (level, lines) in cycles_of(&root) {
            told.push_str(&format!("\na ring in `{level}` of {name}:{lines}"));
        }
    }
    assert!(told.is_empty(), "there are rings:{told}");
}

#[test]
fn a_ring_through_a_re_export_is_found() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ring/lib.rs");
    let lines = "\n  one takes from two::inner\n  two takes from one".to_owned();
    assert_eq!(cycles_of(&root), [(String::new(), lines)]);
}
