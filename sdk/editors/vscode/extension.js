// Starts `flowcell lsp` for flow files. The server does everything else.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = () => {
  const settings = workspace.getConfiguration("flowcell");
  const server = { command: settings.get("command"), args: ["lsp", ...settings.get("arguments")] };
  client = new LanguageClient("flowcell", "Flowcell", server, {
    documentSelector: [{ scheme: "file", pattern: settings.get("files") }],
    initializationOptions: { edges: settings.get("edges") },
    synchronize: { fileEvents: workspace.createFileSystemWatcher(settings.get("files")) },
  });
  return client.start();
};

exports.deactivate = () => client?.stop();
