-- Drives `flowcell lsp` with the language client inside of Neovim. `clients.rs` runs it. An error ends it with a code.

local flow = vim.env.FLOWCELL_FLOW

local function check(is_right, what)
  if not is_right then error(what, 2) end
end

-- Waits for a condition, and fails if it does not come.
local function await(what, condition)
  check(vim.wait(60000, condition, 10), 'no ' .. what)
end

local function run()
  vim.cmd('edit ' .. flow)
  local buffer = vim.api.nvim_get_current_buf()
  local client = vim.lsp.start_client({ name = 'flowcell', cmd = { vim.env.FLOWCELL_PROGRAM, 'lsp' }, root_dir = vim.fn.getcwd() })
  vim.lsp.buf_attach_client(buffer, client)
  await('server', function() return vim.lsp.buf_is_attached(buffer, client) and vim.lsp.get_client_by_id(client).initialized end)

  local function text() return table.concat(vim.api.nvim_buf_get_lines(buffer, 0, -1, false), '\n') end
  -- Puts the cursor on the last letter of a part of the text.
  local function go_to(part)
    for number, line in ipairs(vim.api.nvim_buf_get_lines(buffer, 0, -1, false)) do
      local _, last = line:find(part, 1, true)
      if last then return vim.api.nvim_win_set_cursor(0, { number, last - 1 }) end
    end
    error('no `' .. part .. '` in the text')
  end
  local function ask(method, move)
    local params = vim.lsp.util.make_position_params(0, 'utf-16')
    params.position.character = params.position.character + (move or 0)
    local replies, why = vim.lsp.buf_request_sync(buffer, method, params, 60000)
    check(replies, why)
    check(replies[client] and not replies[client].error, vim.inspect(replies))
    return replies[client].result
  end
  local function diagnostics() return vim.diagnostic.get(buffer) end

  -- Diagnostics come and go with changes of the buffer.
  local before = text()
  vim.api.nvim_buf_set_lines(buffer, 0, -1, false, vim.split((before:gsub('control.switch', 'control.swich', 1)), '\n'))
  await('diagnostic', function() return #diagnostics() > 0 end)
  check(diagnostics()[1].code == 'unknown_type' and diagnostics()[1].source == 'flowcell', vim.inspect(diagnostics()))
  vim.api.nvim_buf_set_lines(buffer, 0, -1, false, vim.split(before, '\n'))
  await('end of the diagnostic', function() return #diagnostics() == 0 end)

  -- Completion and hover, as Neovim shows them.
  go_to('reply: "{{ reply.')
  local items = vim.lsp.util.text_document_completion_list_to_complete_items(ask('textDocument/completion', 1), '')
  check(items[1].word == 'text', vim.inspect(items[1]))
  go_to('type: control.sw')
  local hover = vim.lsp.util.convert_input_to_markdown_lines(ask('textDocument/hover').contents)
  check(table.concat(hover, '\n'):find('`cases`', 1, true), vim.inspect(hover))

  -- The cursor goes to the definition.
  go_to('from: rout')
  vim.lsp.buf.definition()
  await('definition', function() return vim.api.nvim_get_current_line():find('id: route', 1, true) end)

  -- A node is renamed in the buffer.
  vim.lsp.buf.rename('way')
  await('renaming', function() return text():find('id: way', 1, true) end)
  check(not text():find('from: route,', 1, true), text())

  vim.lsp.stop_client(client)
  await('end of the server', function() return vim.lsp.client_is_stopped(client) end)
end

local is_done, why = pcall(run)
if not is_done then
  io.stderr:write(tostring(why) .. '\n')
  vim.cmd('cquit 1')
end
vim.cmd('qall!')
