(component
  (core module $m (func (export "run")))
  (core instance $i (instantiate $m))
  (func $run (canon lift (core func $i "run")))
  (instance $node (export "run" (func $run)))
  (export "flowcell:node/node@0.1.0" (instance $node)))
