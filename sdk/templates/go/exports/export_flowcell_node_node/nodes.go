// The node types of this pack. `node.yaml` describes their inputs and outputs. The bindings expect this package name.
package export_flowcell_node_node

import (
	"encoding/json"

	log "acme/imports/flowcell_host_log"
	context "acme/imports/flowcell_node_context"
	node "acme/imports/flowcell_node_types"

	"go.bytecodealliance.org/pkg/wit/types"
)

// The time that a person has to answer.
const dayMs = 24 * 60 * 60 * 1000

// The result of a node: a step or a failure.
type answer = types.Result[node.Step, node.Failure]

func greet() answer {
	input := read[struct{ Name string }](context.Part_Input)
	if input.Name == "" {
		return fail("nobody", "the name is empty")
	}
	return done(map[string]any{"text": "Hello " + input.Name})
}

// The node gives up its instance while it waits, and runs again when it is woken.
func approve() answer {
	if context.Len(context.Part_Woken, "").Tag() == types.OptionNone {
		input := read[struct{ Text string }](context.Part_Input)
		question := node.Question{
			Prompt:  "Is this good? " + input.Text,
			Choices: []node.Choice{{Value: "yes"}, {Value: "no"}},
		}
		// The node gets this state when it is woken. This node needs none.
		until := []node.Wake{node.MakeWakeAnswer(question), node.MakeWakeAfter(dayMs)}
		return types.Ok[node.Step, node.Failure](node.MakeStepPause(node.Pause{Until: until, State: "null"}))
	}
	woken := read[struct {
		Wake  string
		Value struct{ Content string }
	}](context.Part_Woken)
	if woken.Wake == "after" {
		log.Log(log.Level_Warn, "the question timed out")
	}
	return done(map[string]any{"approved": woken.Value.Content == "yes"})
}

// Run runs one task of a node type. The host calls it.
func Run(nodeType string) answer {
	switch nodeType {
	case "acme.greet":
		return greet()
	case "acme.approve":
		return approve()
	}
	return fail("unknown_node_type", "this pack has no code for it")
}

// Reads a part of the task. The host has checked the input against the manifest, so it fits.
func read[T any](part context.Part) (value T) {
	text := context.GetJson(part, "").Some()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		panic(err)
	}
	return value
}

func done(output any) answer {
	text, err := json.Marshal(output)
	if err != nil {
		return fail("node_failed", err.Error())
	}
	value := node.MakeOutputOne(node.MakeSourceJson(string(text)))
	return types.Ok[node.Step, node.Failure](node.MakeStepDone(value))
}

func fail(code, message string) answer {
	return types.Err[node.Step](node.Failure{Code: code, Message: message})
}
