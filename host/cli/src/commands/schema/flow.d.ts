// Types of scripts, for editors. Begin a script with the line
//   /// <reference path="./flow.d.ts" />
// and write `/** @type {FlowSetup} */` above `setup` and `/** @type {FlowRun} */` above `run`.

/** Declares the script: `setup(flow)` or `init(flow)`. */
type FlowSetup = (flow: FlowDeclarations) => void;

/** Does the work: `run(services, facts)`. */
type FlowRun = (services: FlowServices, facts: FlowFacts) => any;

/** A file, as inputs and services hand it on. */
interface FlowFile {
  kind: "file";
  fileId: string;
  [member: string]: any;
}

interface FlowPort {
  /** True if the input or output may be missing. */
  optional?: boolean;
}

interface FlowDeclarations {
  /** Sets the name of the script. */
  title(text: string): void;
  /** Sets the purpose of the script. */
  description(text: string): void;
  /** Sets the purpose of the script. */
  describe(text: string): void;
  /** Declares an input that is a picture. */
  inImg(id: string, label?: string, port?: FlowPort): void;
  /** Declares an input that is a text. */
  inText(id: string, label?: string, port?: FlowPort): void;
  /** Declares an input that is a file. */
  inFile(id: string, label?: string, port?: FlowPort): void;
  /** Declares an input that is any JSON value. */
  inJson(id: string, label?: string, port?: FlowPort): void;
  /** Declares an output that is a picture. */
  outImg(id: string, label?: string, port?: FlowPort): void;
  /** Declares an output that is a list of pictures. */
  outImgs(id: string, label?: string, port?: FlowPort): void;
  /** Declares an output that is a text. */
  outText(id: string, label?: string, port?: FlowPort): void;
  /** Declares an output that is any JSON value. */
  outJson(id: string, label?: string, port?: FlowPort): void;
}

interface FlowServices {
  /** The inputs by their ids. */
  readonly inputs: { [id: string]: any };
  /** Returns an input. */
  input(id: string): any;
  /** Gives an output, with its value at this moment. */
  outputs(id: string, value: any): void;
  /** Gives an output, with its value at this moment. */
  output(id: string, value: any): void;
  /** Calls the service of this name, and returns a promise of its answer. */
  [service: string]: any;
}

/** The facts about the run. */
interface FlowFacts {
  run: {
    id: string;
    /** The time at which the run began. */
    started: string;
    labels: { [name: string]: string };
  };
  flow: {
    name: string;
    /** The version of the flow; null if it is not stored. */
    version: number | null;
  };
  task: {
    id: string;
    /** The pass of the body or cycle around the task; null outside of them. */
    pass: number | null;
  };
  tenant: string;
}

/** The functions of expressions. Optional arguments may stand by name in an object at the end. */
declare const fn: FlowFunctions;
