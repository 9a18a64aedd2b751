//! The declarations of `target/pack.h` that this pack uses. To have all of them, replace this file by the output of
//! `python-zig translate-c -target wasm32-wasi -lc -I target target/pack.h`. Its first call takes minutes, because zig then
//! compiles the translator.

pub const pack_string_t = extern struct { ptr: [*c]u8 = null, len: usize = 0 };
pub extern fn pack_string_dup_n(ret: [*c]pack_string_t, s: [*c]const u8, len: usize) void;

// The parts of a task.
pub const FLOWCELL_NODE_CONTEXT_PART_INPUT = 0;
pub const FLOWCELL_NODE_CONTEXT_PART_WOKEN = 3;
pub extern fn flowcell_node_context_get_json(part: u8, path: [*c]pack_string_t, ret: [*c]pack_string_t) bool;
pub extern fn flowcell_node_context_get_text(part: u8, path: [*c]pack_string_t, ret: [*c]pack_string_t) bool;

// The log.
pub const FLOWCELL_HOST_LOG_LEVEL_WARN = 3;
pub extern fn flowcell_host_log_log(level: u8, message: [*c]pack_string_t) void;

// A failure.
const option_u32 = extern struct { is_some: bool = false, val: u32 = 0 };
const option_string = extern struct { is_some: bool = false, val: pack_string_t = .{} };
pub const flowcell_node_types_failure_t = extern struct {
    code: pack_string_t = .{},
    message: pack_string_t = .{},
    retryable: bool = false,
    retry_after_ms: option_u32 = .{},
    details: option_string = .{},
};

// An output.
pub const FLOWCELL_NODE_TYPES_SOURCE_JSON = 0;
pub const FLOWCELL_NODE_TYPES_OUTPUT_OBJECT = 1;
pub const flowcell_node_types_source_t = extern struct {
    tag: u8 = 0,
    val: extern union { json: pack_string_t, input: pack_string_t, woken: pack_string_t },
};
pub const flowcell_node_types_tuple2_string_source_t = extern struct {
    f0: pack_string_t = .{},
    f1: flowcell_node_types_source_t,
};
const list_member = extern struct { ptr: [*c]flowcell_node_types_tuple2_string_source_t = null, len: usize = 0 };
pub const flowcell_node_types_output_t = extern struct {
    tag: u8 = 0,
    val: extern union { one: flowcell_node_types_source_t, object: list_member },
};

// A pause.
pub const FLOWCELL_NODE_TYPES_WAKE_AFTER = 1;
pub const FLOWCELL_NODE_TYPES_WAKE_ANSWER = 3;
pub const flowcell_node_types_choice_t = extern struct { value: pack_string_t = .{}, label: option_string = .{} };
const list_choice = extern struct { ptr: [*c]flowcell_node_types_choice_t = null, len: usize = 0 };
const list_string = extern struct { ptr: [*c]pack_string_t = null, len: usize = 0 };
pub const flowcell_node_types_question_t = extern struct {
    prompt: pack_string_t = .{},
    choices: list_choice = .{},
    allow_text: bool = false,
    schema: option_string = .{},
    audience: list_string = .{},
};
const fan_out = extern struct {
    items: flowcell_node_types_source_t,
    concurrency: option_u32 = .{},
    stop_on_failure: bool = false,
};
const flow_call = extern struct { name: pack_string_t = .{}, input: flowcell_node_types_source_t };
pub const flowcell_node_types_wake_t = extern struct {
    tag: u8 = 0,
    val: extern union {
        after: u64,
        event: pack_string_t,
        answer: flowcell_node_types_question_t,
        body: flowcell_node_types_source_t,
        each: fan_out,
        flow: flow_call,
    },
};
const list_wake = extern struct { ptr: [*c]flowcell_node_types_wake_t = null, len: usize = 0 };
pub const flowcell_node_types_pause_t = extern struct { until: list_wake = .{}, state: pack_string_t = .{} };

// A step.
pub const FLOWCELL_NODE_TYPES_STEP_DONE = 0;
pub const FLOWCELL_NODE_TYPES_STEP_PAUSE = 1;
pub const flowcell_node_types_step_t = extern struct {
    tag: u8 = 0,
    val: extern union { done: flowcell_node_types_output_t, pause: flowcell_node_types_pause_t },
};
