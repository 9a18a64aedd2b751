// The node types of this pack. `node.yaml` describes their inputs and outputs.
#include <stdlib.h>
#include <string.h>

#include "pack.h"

// The time that a person has to answer.
static const uint64_t DAY_MS = 24 * 60 * 60 * 1000;

// Reads a part of the task, as JSON or as a text. Returns false if the part does not exist.
static bool read_json(flowcell_node_context_part_t part, const char *path, pack_string_t *json) {
  pack_string_t place;
  pack_string_set(&place, path);
  return flowcell_node_context_get_json(part, &place, json);
}

static bool read_text(flowcell_node_context_part_t part, const char *path, pack_string_t *text) {
  pack_string_t place;
  pack_string_set(&place, path);
  return flowcell_node_context_get_text(part, &place, text);
}

static bool is(pack_string_t text, const char *other) {
  return text.len == strlen(other) && memcmp(text.ptr, other, text.len) == 0;
}

// Joins a text and the bytes after it. The bindings free all results of a node, so they must come from the heap.
static pack_string_t join(const char *text, const uint8_t *more, size_t len) {
  size_t before = strlen(text);
  pack_string_t joined = { malloc(before + len), before + len };
  if (joined.ptr == NULL) abort();
  memcpy(joined.ptr, text, before);
  memcpy(joined.ptr + before, more, len);
  return joined;
}

// Ends the task. Its output is an object with one member, whose value is JSON.
static bool done(flowcell_node_types_step_t *step, const char *key, pack_string_t json) {
  flowcell_node_types_tuple2_string_source_t *member = calloc(1, sizeof *member);
  if (member == NULL) abort();
  pack_string_dup(&member->f0, key);
  member->f1.tag = FLOWCELL_NODE_TYPES_SOURCE_JSON;
  member->f1.val.json = json;
  step->tag = FLOWCELL_NODE_TYPES_STEP_DONE;
  step->val.done.tag = FLOWCELL_NODE_TYPES_OUTPUT_OBJECT;
  step->val.done.val.object.ptr = member;
  step->val.done.val.object.len = 1;
  return true;
}

static bool fail(flowcell_node_types_failure_t *failure, const char *code, const char *message) {
  pack_string_dup(&failure->code, code);
  pack_string_dup(&failure->message, message);
  return false;
}

static bool greet(flowcell_node_types_step_t *step, flowcell_node_types_failure_t *failure) {
  pack_string_t name;
  // The host has checked the input against the manifest, so the name is present, with its quotes and escapes.
  read_json(FLOWCELL_NODE_CONTEXT_PART_INPUT, "/name", &name);
  if (is(name, "\"\"")) return fail(failure, "nobody", "the name is empty");
  return done(step, "text", join("\"Hello ", name.ptr + 1, name.len - 1));
}

// Gives up the instance until a person has answered or a day is over.
static bool ask(flowcell_node_types_step_t *step) {
  pack_string_t text;
  read_text(FLOWCELL_NODE_CONTEXT_PART_INPUT, "/text", &text);
  flowcell_node_types_wake_t *until = calloc(2, sizeof *until);
  flowcell_node_types_choice_t *choices = calloc(2, sizeof *choices);
  if (until == NULL || choices == NULL) abort();
  pack_string_dup(&choices[0].value, "yes");
  pack_string_dup(&choices[1].value, "no");
  until[0].tag = FLOWCELL_NODE_TYPES_WAKE_ANSWER;
  until[0].val.answer.prompt = join("Is this good? ", text.ptr, text.len);
  until[0].val.answer.choices.ptr = choices;
  until[0].val.answer.choices.len = 2;
  until[1].tag = FLOWCELL_NODE_TYPES_WAKE_AFTER;
  until[1].val.after = DAY_MS;
  step->tag = FLOWCELL_NODE_TYPES_STEP_PAUSE;
  step->val.pause.until.ptr = until;
  step->val.pause.until.len = 2;
  // The state that the node gets when it is woken. This node needs none.
  pack_string_dup(&step->val.pause.state, "null");
  return true;
}

// The node runs again, in a new instance, when it is woken.
static bool approve(flowcell_node_types_step_t *step) {
  pack_string_t wake, content;
  if (!read_text(FLOWCELL_NODE_CONTEXT_PART_WOKEN, "/wake", &wake)) return ask(step);
  if (is(wake, "after")) {
    pack_string_t message;
    pack_string_set(&message, "the question timed out");
    flowcell_host_log_log(FLOWCELL_HOST_LOG_LEVEL_WARN, &message);
  }
  bool yes = read_text(FLOWCELL_NODE_CONTEXT_PART_WOKEN, "/value/content", &content) && is(content, "yes");
  return done(step, "approved", join(yes ? "true" : "false", NULL, 0));
}

// The host calls this function. It returns true with a step, or false with a failure.
bool exports_flowcell_node_node_run(pack_string_t *type, flowcell_node_types_step_t *step,
                                    flowcell_node_types_failure_t *failure) {
  memset(step, 0, sizeof *step);
  memset(failure, 0, sizeof *failure);
  if (is(*type, "acme.greet")) return greet(step, failure);
  if (is(*type, "acme.approve")) return approve(step);
  return fail(failure, "unknown_node_type", "this pack has no code for it");
}
