// The node types of this pack. `node.yaml` describes their inputs and outputs.
const std = @import("std");
const c = @import("pack.zig");

/// Panics trap without a message. Without this line, and with `--wasi-adapter reactor` in `build.sh`, the log has their
/// messages, and the pack is larger.
pub const panic = std.debug.no_panic;

/// The time that a person has to answer.
const day_ms = 24 * 60 * 60 * 1000;

const Part = enum(u8) {
    input = c.FLOWCELL_NODE_CONTEXT_PART_INPUT,
    woken = c.FLOWCELL_NODE_CONTEXT_PART_WOKEN,
};

/// The codes of the failures, as `node.yaml` lists them.
const Failing = error{ nobody, unknown_node_type };

// Reads a part of the task, as JSON or as a text. Returns null if the part does not exist.
fn readJson(part: Part, path: []const u8) ?[]u8 {
    var at = borrowed(path);
    var json: c.pack_string_t = .{};
    return if (c.flowcell_node_context_get_json(@backingInt(part), &at, &json)) json.ptr[0..json.len] else null;
}

fn readText(part: Part, path: []const u8) ?[]u8 {
    var at = borrowed(path);
    var text: c.pack_string_t = .{};
    return if (c.flowcell_node_context_get_text(@backingInt(part), &at, &text)) text.ptr[0..text.len] else null;
}

fn borrowed(text: []const u8) c.pack_string_t {
    return .{ .ptr = @constCast(text.ptr), .len = text.len };
}

// The bindings free all results of a node, so they must come from the heap of C.
fn owned(text: []const u8) c.pack_string_t {
    var copy: c.pack_string_t = .{};
    c.pack_string_dup_n(&copy, text.ptr, text.len);
    return copy;
}

fn join(parts: []const []const u8) c.pack_string_t {
    const text = std.mem.concat(std.heap.c_allocator, u8, parts) catch @panic("out of memory");
    return .{ .ptr = text.ptr, .len = text.len };
}

fn list(comptime T: type, len: usize) []T {
    return std.heap.c_allocator.alloc(T, len) catch @panic("out of memory");
}

/// Ends the task. Its output is an object with one member, whose value is JSON.
fn done(key: []const u8, json: c.pack_string_t) c.flowcell_node_types_step_t {
    const members = list(c.flowcell_node_types_tuple2_string_source_t, 1);
    members[0] = .{ .f0 = owned(key), .f1 = .{ .tag = c.FLOWCELL_NODE_TYPES_SOURCE_JSON, .val = .{ .json = json } } };
    return .{ .tag = c.FLOWCELL_NODE_TYPES_STEP_DONE, .val = .{ .done = .{
        .tag = c.FLOWCELL_NODE_TYPES_OUTPUT_OBJECT,
        .val = .{ .object = .{ .ptr = members.ptr, .len = members.len } },
    } } };
}

fn greet() Failing!c.flowcell_node_types_step_t {
    // The host has checked the input against the manifest, so the name is present, with its quotes and escapes.
    const name = readJson(.input, "/name").?;
    if (std.mem.eql(u8, name, "\"\"")) return error.nobody;
    return done("text", join(&.{ "\"Hello ", name[1..] }));
}

/// Gives up the instance until a person has answered or a day is over.
fn ask() c.flowcell_node_types_step_t {
    const choices = list(c.flowcell_node_types_choice_t, 2);
    for (choices, [_][]const u8{ "yes", "no" }) |*choice, value| choice.* = .{ .value = owned(value) };
    const until = list(c.flowcell_node_types_wake_t, 2);
    until[0] = .{ .tag = c.FLOWCELL_NODE_TYPES_WAKE_ANSWER, .val = .{ .answer = .{
        .prompt = join(&.{ "Is this good? ", readText(.input, "/text").? }),
        .choices = .{ .ptr = choices.ptr, .len = choices.len },
    } } };
    until[1] = .{ .tag = c.FLOWCELL_NODE_TYPES_WAKE_AFTER, .val = .{ .after = day_ms } };
    return .{
        .tag = c.FLOWCELL_NODE_TYPES_STEP_PAUSE,
        .val = .{
            .pause = .{
                .until = .{ .ptr = until.ptr, .len = until.len },
                // The state that the node gets when it is woken. This node needs none.
                .state = owned("null"),
            },
        },
    };
}

/// The node runs again, in a new instance, when it is woken.
fn approve() Failing!c.flowcell_node_types_step_t {
    const wake = readText(.woken, "/wake") orelse return ask();
    if (std.mem.eql(u8, wake, "after")) {
        var message = borrowed("the question timed out");
        c.flowcell_host_log_log(c.FLOWCELL_HOST_LOG_LEVEL_WARN, &message);
    }
    const answer = readText(.woken, "/value/content") orelse "";
    return done("approved", owned(if (std.mem.eql(u8, answer, "yes")) "true" else "false"));
}

fn run(node_type: []const u8) Failing!c.flowcell_node_types_step_t {
    if (std.mem.eql(u8, node_type, "acme.greet")) return greet();
    if (std.mem.eql(u8, node_type, "acme.approve")) return approve();
    return error.unknown_node_type;
}

fn describe(failing: Failing) []const u8 {
    return switch (failing) {
        error.nobody => "the name is empty",
        error.unknown_node_type => "this pack has no code for it",
    };
}

/// The host calls this function. It returns true with a step, or false with a failure.
export fn exports_flowcell_node_node_run(
    node_type: *c.pack_string_t,
    step: *c.flowcell_node_types_step_t,
    failure: *c.flowcell_node_types_failure_t,
) bool {
    step.* = run(node_type.ptr[0..node_type.len]) catch |failing| {
        failure.* = .{ .code = owned(@errorName(failing)), .message = owned(describe(failing)) };
        return false;
    };
    return true;
}
