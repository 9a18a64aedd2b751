//! A minimal host for the comparison: it calls the component through wasmtime, with the settings of the engine.

use std::path::Path;

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store, StoreLimits,
    StoreLimitsBuilder,
    component::{Component, HasSelf, Linker, ResourceTable},
};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "flowcell:pack/everything",
    imports: { "flowcell:node/context": trappable, default: async | trappable },
    exports: { default: async },
});

use self::flowcell::{
    host::{calls, http},
    node::{context, types},
};

pub(crate) struct Bare {
    engine: Engine,
    instance: EverythingPre<Host>,
    node_type: String,
    input: String,
}

struct Host {
    input: String,
    wasi: WasiCtx,
    table: ResourceTable,
    limits: StoreLimits,
}

impl Bare {
    pub(crate) fn new(component: &[u8], node_type: &str, input: &str) -> Bare {
        let engine = engine();
        let component = Component::new(&engine, component).unwrap();
        Bare::link(engine, component, node_type, input)
    }

    /// Loads compiled code from a file that [`Bare::precompile`] wrote.
    #[allow(unsafe_code, reason = "the benchmark has written the file itself")]
    pub(crate) fn precompiled(code: &Path, node_type: &str, input: &str) -> Bare {
        let engine = engine();
        // SAFETY: no other process knows the path of the file.
        let component = unsafe { Component::deserialize_file(&engine, code) }.unwrap();
        Bare::link(engine, component, node_type, input)
    }

    pub(crate) fn precompile(component: &[u8], code: &Path) {
        std::fs::write(code, engine().precompile_component(component).unwrap()).unwrap();
    }

    fn link(engine: Engine, component: Component, node_type: &str, input: &str) -> Bare {
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).unwrap();
        types::add_to_linker::<Host, HasSelf<Host>>(&mut linker, |host| host).unwrap();
        context::add_to_linker::<Host, HasSelf<Host>>(&mut linker, |host| host).unwrap();
        calls::add_to_linker::<Host, HasSelf<Host>>(&mut linker, |host| host).unwrap();
        http::add_to_linker::<Host, HasSelf<Host>>(&mut linker, |host| host).unwrap();
        // Hash maps need this seed. The same interface in another version counts as unknown below.
        let mut seed = linker.instance("wasi:random/insecure-seed@0.2.6").unwrap();
        seed.func_wrap("insecure-seed", |_, (): ()| Ok(((0_u64, 0_u64),))).unwrap();
        linker.define_unknown_imports_as_traps(&component).unwrap();
        let instance = EverythingPre::new(linker.instantiate_pre(&component).unwrap()).unwrap();
        Bare { engine, instance, node_type: node_type.into(), input: input.into() }
    }

    pub(crate) async fn call(&self) {
        let host = Host {
            input: self.input.clone(),
            wasi: WasiCtx::builder().build(),
            table: ResourceTable::new(),
            limits: StoreLimitsBuilder::new().memory_size(64 << 20).build(),
        };
        let mut store = Store::new(&self.engine, host);
        store.limiter(|host| &mut host.limits);
        store.epoch_deadline_async_yield_and_update(1);
        store.set_epoch_deadline(1_000_000);
        let instance = self.instance.instantiate_async(&mut store).await.unwrap();
        let step = instance.flowcell_node_node().call_run(&mut store, &self.node_type).await.unwrap().unwrap();
        assert!(matches!(step, types::Step::Done(_)));
    }
}

fn engine() -> Engine {
    let mut pool = PoolingAllocationConfig::new();
    pool.max_memory_size(64 << 20)
        .linear_memory_keep_resident(64 << 10)
        .table_keep_resident(4 << 10)
        .async_stack_keep_resident(16 << 10)
        .pagemap_scan(Enabled::Auto);
    let mut config = Config::new();
    config
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .concurrency_support(false)
        .epoch_interruption(true)
        .cranelift_nan_canonicalization(true)
        .async_stack_zeroing(true)
        .async_stack_size(1 << 20);
    Engine::new(&config).unwrap()
}

impl WasiView for Host {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl types::Host for Host {}

impl calls::Host for Host {}

/// Answers each request at once.
impl http::Host for Host {
    async fn send(&mut self, _: http::Request) -> wasmtime::Result<Result<http::Response, calls::Error>> {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Ok(Ok(http::Response { status: 200, headers, body: http::Content::Text(r#"{"ok":true}"#.into()) }))
    }

    async fn start_send(&mut self, _: http::Request) -> wasmtime::Result<Result<u32, calls::Error>> {
        Err(wasmtime::format_err!("nobody starts a call here"))
    }

    async fn take_response(&mut self, _: u32) -> wasmtime::Result<Result<http::Response, calls::Error>> {
        Err(wasmtime::format_err!("nobody starts a call here"))
    }

    async fn open_stream(
        &mut self,
        _: http::Request,
        _: http::StreamTimes,
    ) -> wasmtime::Result<Result<http::Opened, calls::Error>> {
        Err(wasmtime::format_err!("nobody opens a stream here"))
    }

    async fn read_stream(&mut self, _: u32) -> wasmtime::Result<Result<Option<Vec<u8>>, calls::Error>> {
        Err(wasmtime::format_err!("nobody opens a stream here"))
    }

    async fn close_stream(&mut self, _: u32) -> wasmtime::Result<()> {
        Err(wasmtime::format_err!("nobody opens a stream here"))
    }

    async fn keep(&mut self, _: Vec<u8>, _: String) -> wasmtime::Result<Result<String, calls::Error>> {
        Err(wasmtime::format_err!("nobody keeps a file here"))
    }
}

impl context::Host for Host {
    fn get_json(&mut self, _: context::Part, _: String) -> wasmtime::Result<Option<String>> {
        Ok(Some(self.input.clone()))
    }

    fn get_text(&mut self, _: context::Part, _: String) -> wasmtime::Result<Option<String>> {
        Ok(None)
    }

    fn len(&mut self, _: context::Part, _: String) -> wasmtime::Result<Option<u32>> {
        Ok(None)
    }

    fn read_file(&mut self, _: String, _: u64, _: u32) -> wasmtime::Result<Result<Vec<u8>, types::Failure>> {
        Ok(Ok(Vec::new()))
    }
}
