"""Drives `flowcell lsp` with pytest-lsp, a client that others wrote. `lsp.rs` runs it."""

import os
import pathlib

import pytest_lsp
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

FLOWS = pathlib.Path(os.environ["FLOWCELL_EXAMPLES"])


@pytest_lsp.fixture(config=ClientServerConfig(server_command=[os.environ["FLOWCELL_PROGRAM"], "lsp"]))
async def client(lsp_client: LanguageClient):
    parameters = types.InitializeParams(capabilities=client_capabilities("visual-studio-code"))
    await lsp_client.initialize_session(parameters)
    yield
    await lsp_client.shutdown_session()


def open_file(client, name, text=None):
    path = FLOWS / name
    text = path.read_text() if text is None else text
    item = types.TextDocumentItem(uri=path.as_uri(), language_id="yaml", version=1, text=text)
    client.text_document_did_open(types.DidOpenTextDocumentParams(text_document=item))
    return path.as_uri(), text


def place(text, part):
    at = text.index(part) + len(part)
    line = text.count("\n", 0, at)
    return types.Position(line=line, character=at - (text.rfind("\n", 0, at) + 1))


async def test_every_example_is_free_of_errors(client: LanguageClient):
    for path in sorted(FLOWS.glob("*.yaml")):
        if path.name.endswith(".test.yaml"):
            continue
        uri, _ = open_file(client, path.name)
        await client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        errors = [found for found in client.diagnostics[uri] if found.severity == types.DiagnosticSeverity.Error]
        assert not errors, (path.name, errors)


async def test_members_of_an_output_are_completed(client: LanguageClient):
    uri, text = open_file(client, "triage.yaml")
    result = await client.text_document_completion_async(
        types.CompletionParams(
            text_document=types.TextDocumentIdentifier(uri=uri), position=place(text, 'reply: "{{ reply.')
        )
    )
    assert [item.label for item in result.items][0] == "text"


async def test_a_node_is_renamed(client: LanguageClient):
    uri, text = open_file(client, "triage.yaml")
    document = types.TextDocumentIdentifier(uri=uri)
    position = place(text, "id: rout")
    prepared = await client.text_document_prepare_rename_async(
        types.PrepareRenameParams(text_document=document, position=position)
    )
    assert prepared.placeholder == "route"
    renamed = await client.text_document_rename_async(
        types.RenameParams(text_document=document, position=position, new_name="way")
    )
    assert len(renamed.changes[uri]) == 11


async def test_hover_symbols_folds_and_tokens_are_well_formed(client: LanguageClient):
    uri, text = open_file(client, "triage.yaml")
    document = types.TextDocumentIdentifier(uri=uri)
    hover = await client.text_document_hover_async(
        types.HoverParams(text_document=document, position=place(text, "control.sw"))
    )
    assert "`cases`" in hover.contents.value
    symbols = await client.text_document_document_symbol_async(types.DocumentSymbolParams(text_document=document))
    assert [symbol.name for symbol in symbols] == ["flow", "nodes", "edges"]
    folds = await client.text_document_folding_range_async(types.FoldingRangeParams(text_document=document))
    assert all(fold.start_line < fold.end_line for fold in folds)
    tokens = await client.text_document_semantic_tokens_full_async(types.SemanticTokensParams(text_document=document))
    assert tokens.data and len(tokens.data) % 5 == 0
