# What of the kernel for R runs in R itself: it evaluates cells, and says on descriptor 9 what they give. cloche-shell-kernel
# (src/interpreter/shell/r.c) starts it, sends what to do on descriptor 6, and reads its output as that of any program.
#
# A message is "KIND LENGTH\n" and as many bytes. A request is 32 bytes: kind, number, and for a cell how long the variables are
# with which the text on descriptor 7 begins.
local({
  from <- file("/proc/self/fd/6", "rb", raw = TRUE)
  to <- file("/proc/self/fd/9", "wb", raw = TRUE)
  folder <- tempfile("figures")
  cell <- new.env()
  own_pid <- Sys.getpid()
  PIXELS_MAX <- 100 * 2^20
  DATA_MAX <- 200000L
  ROWS_SHOWN <- 60L

  # A process that a cell has forked says nothing, and ends with the cell: it must not become a second kernel.
  forked <- function() Sys.getpid() != own_pid

  send <- function(kind, content = "") {
    if (forked()) return(invisible())
    if (is.character(content)) content <- charToRaw(enc2utf8(paste(content, collapse = "\n")))
    writeBin(c(charToRaw(sprintf("%s %d\n", kind, length(content))), content), to)
    flush(to)
  }

  # Ends a result. What was printed before it has been read when the answer comes, one byte.
  send_show <- function(main) {
    send("show", if (main) "1" else "0")
    if (!forked()) readBin(from, "raw", 1)
  }

  # JSON

  json_text <- function(x) {
    x <- enc2utf8(as.character(x))
    x <- iconv(x, "UTF-8", "UTF-8", sub = "\uFFFD")
    none <- is.na(x)
    x <- gsub("\"", "\\\"", gsub("\\", "\\\\", x, fixed = TRUE), fixed = TRUE)
    if (any(grepl("[\001-\037]", x)))
      for (i in 1:31) x <- gsub(intToUtf8(i), sprintf("\\u%04x", i), x, fixed = TRUE)
    ifelse(none, "null", paste0("\"", x, "\""))
  }

  json_number <- function(x) {
    text <- formatC(x, digits = 15, width = 1, format = "g")
    inexact <- is.finite(x) & suppressWarnings(as.numeric(text)) != x
    text[inexact] <- formatC(x[inexact], digits = 17, width = 1, format = "g")
    ifelse(is.finite(x), text, "null")
  }

  # The members of a vector, each as JSON.
  json_members <- function(x) {
    if (is.factor(x) || inherits(x, c("Date", "POSIXt", "difftime"))) json_text(as.character(x))
    else if (is.logical(x)) ifelse(is.na(x), "null", ifelse(x, "true", "false"))
    else if (is.numeric(x)) json_number(as.numeric(x))
    else if (is.character(x)) json_text(x)
    else if (is.list(x)) vapply(x, json, "")
    else json_text(format(x))
  }

  json_object <- function(x) {
    keys <- make.unique(ifelse(is.na(names(x)), "NA", names(x)))
    paste0("{", paste0(json_text(keys), ":", vapply(x, json, ""), collapse = ","), "}")
  }

  json <- function(x) {
    if (is.null(x)) "null"
    else if (is.list(x) && !is.null(names(x))) json_object(x)
    else if (length(x) == 1 && is.atomic(x)) json_members(x)
    else paste0("[", paste(json_members(x), collapse = ","), "]")
  }

  plain_list <- function(x, depth = 0) {
    if (is.list(x)) is.null(attr(x, "class")) && depth < 100 && all(vapply(x, plain_list, NA, depth + 1))
    else is.null(x) || is.atomic(x) && !is.complex(x) && !is.raw(x)
  }

  # Values

  html <- function(text) {
    for (pair in list(c("&", "&amp;"), c("<", "&lt;"), c(">", "&gt;"))) text <- gsub(pair[1], pair[2], text, fixed = TRUE)
    text
  }

  html_table <- function(x) {
    n <- nrow(x)
    rows <- if (n <= ROWS_SHOWN) seq_len(n) else c(seq_len(ROWS_SHOWN / 2), n - (ROWS_SHOWN / 2 - 1):0)
    shown <- x[rows, , drop = FALSE]
    cells <- vapply(shown, function(column) html(vapply(seq_along(rows), function(i)
      paste(format(if (is.list(column)) column[[i]] else column[i]), collapse = ", "), "")), character(length(rows)))
    cells <- matrix(cells, nrow = length(rows))
    line <- function(tag, first, rest)
      paste0("<tr><th>", first, "</th>", paste0("<", tag, ">", rest, "</", tag, ">", collapse = ""), "</tr>")
    body <- vapply(seq_along(rows), function(i) line("td", html(row.names(shown)[i]), cells[i, ]), "")
    if (n > ROWS_SHOWN) body <- append(body, line("td", "\u22EE", rep("\u22EE", ncol(x))), ROWS_SHOWN / 2)
    paste0("<table border=\"1\" class=\"dataframe\">\n<thead>", line("th", "", html(names(x))), "</thead>\n<tbody>\n",
      paste(body, collapse = "\n"), "\n</tbody>\n</table>\n<p>", n, " rows \u00D7 ", ncol(x), " columns</p>")
  }

  part <- function(type, content) send(paste0("part:", type), content)

  frame_parts <- function(x) {
    part("text/html", html_table(x))
    keep <- if (ncol(x)) min(nrow(x), DATA_MAX %/% ncol(x)) else 0
    if (keep < nrow(x)) send("rows", as.character(nrow(x)))
    columns <- lapply(x[seq_len(keep), , drop = FALSE], function(column) paste0("[", paste(json_members(column), collapse = ","), "]"))
    keys <- make.unique(names(x))
    send("data", paste0("{", paste0(json_text(keys), if (length(keys)) ":", columns, collapse = ","), "}"))
  }

  show_value <- function(value, main) {
    text <- utils::capture.output(if (isS4(value)) methods::show(value) else print(value))
    # What draws itself, as plots of ggplot2 and lattice do, has no text.
    if (length(text) == 0) return(invisible())
    part("text/plain", text)
    if (is.data.frame(value)) frame_parts(as.data.frame(value))
    else if (inherits(value, c("html", "shiny.tag", "shiny.tag.list"))) part("text/html", as.character(value))
    else if (is.list(value) && plain_list(value)) part("application/json", json(value))
    send_show(main)
  }

  # Figures: a device of our own is opened by the first drawing of a cell. Its pages are files, shown at the end of the cell.

  device <- function(...) {
    width <- getOption("repr.plot.width", 7)
    height <- getOption("repr.plot.height", 7)
    res <- getOption("repr.plot.res", 100)
    if (width * height * res^2 > PIXELS_MAX)
      stop(sprintf("a figure has at most %d million pixels: this would be %.0f x %.0f", PIXELS_MAX %/% 1e6, width * res, height * res))
    cell$devices <- cell$devices + 1
    dir.create(folder, showWarnings = FALSE)
    name <- file.path(folder, sprintf("%03d-%%03d.png", cell$devices))
    if (!capabilities("png")) {
      message("this R cannot draw PNG: the figure is not shown")
      grDevices::pdf(NULL)
    } else {
      grDevices::png(name, width = width, height = height, units = "in", res = res,
        type = if (capabilities("cairo")) "cairo" else getOption("bitmapType"))
    }
    cell$open <- c(cell$open, grDevices::dev.cur())
  }

  figures <- function() {
    for (d in cell$open) if (d %in% grDevices::dev.list() && names(grDevices::dev.list())[match(d, grDevices::dev.list())] %in% c("png", "pdf"))
      grDevices::dev.off(d)
    cell$open <- integer()
    for (name in sort(list.files(folder, full.names = TRUE))) {
      part("text/plain", "<figure>")
      part("image/png", readBin(name, "raw", file.size(name)))
      send_show(FALSE)
    }
    unlink(folder, recursive = TRUE)
  }

  # Cells

  headline <- function(e) {
    call <- conditionCall(e)
    where <- if (is.null(call) || identical(call, quote(eval(parsed[i], globalenv())))) "" else paste0(" in ", substr(paste(deparse(call, nlines = 1), collapse = " "), 1, 200))
    paste0("Error", where, ": ", conditionMessage(e))
  }

  # The calls between the cell and the error, of which the first lines are ours.
  trace_of <- function(calls) {
    own <- which(vapply(calls, function(x) identical(x[[1]], quote(eval)) && length(x) == 3 && identical(x[[3]], quote(globalenv())), NA))
    calls <- if (length(own)) calls[-c(seq_len(own[1] + 1), length(calls))] else list()
    calls <- Filter(function(x) !identical(x[[1]], quote(.handleSimpleError)), calls)
    text <- vapply(calls, function(x) {
      place <- attr(x, "srcref")
      source <- if (is.null(place)) "" else sprintf("  (%s, line %d)", attr(place, "srcfile")$filename, place[1])
      paste0(substr(deparse(x, nlines = 1)[1], 1, 200), source)
    }, "")
    if (length(text)) paste0("\nTraceback:\n", paste0(seq_along(text), ". ", text, collapse = "\n")) else ""
  }

  fail <- function(name, value, traceback, place = NULL) {
    send("name", name)
    send("value", value)
    send("traceback", paste0(traceback, "\n"))
    if (!is.null(place)) send("place", place)
  }

  parse_cell <- function(code, name) {
    lines <- strsplit(code, "\n", fixed = TRUE)[[1]]
    parse(text = lines, srcfile = srcfilecopy(name, lines), keep.source = TRUE)
  }

  parse_failed <- function(e, name) {
    value <- conditionMessage(e)
    place <- regmatches(value, regexec(paste0("^<[^>]*>:([0-9]+):([0-9]+): ([^\n]*)"), value))[[1]]
    if (length(place)) fail("ParseError", place[4], value, paste(place[2], max(1L, as.integer(place[3])))) else fail("ParseError", value, value)
  }

  evaluate <- function(parsed) {
    calls <- NULL
    problem <- tryCatch(withCallingHandlers({
      for (i in seq_along(parsed)) {
        it <- withVisible(eval(parsed[i], globalenv()))
        if (it$visible) show_value(it$value, i == length(parsed))
        if (i == length(parsed) && it$visible) assign(".Last.value", it$value, envir = globalenv())
      }
      NULL
    }, error = function(e) calls <<- sys.calls()), error = function(e) e)
    if (!is.null(problem)) {
      name <- class(problem)[1]
      fail(if (name %in% c("simpleError", "error", "condition")) "Error" else name, conditionMessage(problem),
        paste0(headline(problem), trace_of(calls)))
    }
    is.null(problem)
  }

  set_variables <- function(changes) {
    if (!length(changes)) return(changes)
    had <- as.list(Sys.getenv(names(changes), NA, names = TRUE))
    for (name in names(changes)) if (is.na(changes[[name]])) Sys.unsetenv(name) else do.call(Sys.setenv, changes[name])
    had
  }

  execute <- function(code, number, changes) {
    name <- sprintf("<cell %d>", number)
    had <- set_variables(changes)
    cell$devices <- 0
    cell$open <- integer()
    ok <- FALSE
    tryCatch(allowInterrupts({
      send("begun", as.character(number))
      parsed <- tryCatch(parse_cell(code, name), error = function(e) e)
      if (inherits(parsed, "error")) parse_failed(parsed, name)
      else ok <- evaluate(parsed)
    }), interrupt = function(e) fail("KeyboardInterrupt", "", "KeyboardInterrupt"))
    if (forked()) tools::pskill(Sys.getpid(), tools::SIGKILL)
    while (sink.number() > 0) sink()
    if (sink.number(type = "message") != 2) sink(type = "message")
    figures()
    set_variables(had)
    ok
  }

  # What editors ask

  complete <- function(code, cursor) {
    before <- sub("^.*\n", "", substr(code, 1, cursor))
    utils <- asNamespace("utils")
    utils$.assignLinebuffer(before)
    utils$.assignEnd(nchar(before))
    utils$.guessTokenFromLine()
    utils$.completeToken()
    token <- utils$.CompletionEnv[["token"]]
    found <- utils::head(utils$.retrieveCompletions(), 1000)
    list(matches = sprintf("[%s]", paste(json_text(found), collapse = ",")), start = cursor - nchar(token), end = cursor)
  }

  is_complete <- function(code) {
    said <- tryCatch({ parse(text = code, keep.source = FALSE); "" }, error = conditionMessage)
    open <- grepl("unexpected end of input|INCOMPLETE_STRING", said)
    list(status = json_text(if (said == "") "complete" else if (open) "incomplete" else "invalid"), indent = json_text(if (open) "  " else ""))
  }

  inspect <- function(code, cursor) {
    name <- "[A-Za-z0-9._$@:]"
    word <- paste0(sub(paste0("^.*?(", name, "*)$"), "\\1", substr(code, 1, cursor)),
      sub(paste0("^(", name, "*).*$"), "\\1", substr(code, cursor + 1, nchar(code))))
    text <- tryCatch({
      value <- eval(parse(text = word)[[1]], globalenv())
      utils::capture.output(if (is.function(value)) print(args(value)) else utils::str(value))
    }, error = function(e) NULL)
    if (is.null(text) || word == "") return(list(found = "false", mime = "{}"))
    list(found = "true", mime = sprintf("{\"text/plain\":%s}", json_text(paste(c(word, text), collapse = "\n"))))
  }

  # Requests

  pieces <- function(bytes) {
    if (!length(bytes)) return(list())
    ends <- which(bytes == 0)
    starts <- c(1, ends[-length(ends)] + 1)
    found <- mapply(function(a, b) if (b > a) rawToChar(bytes[a:(b - 1)]) else "", starts, ends)
    at <- regexpr("=", found, fixed = TRUE)
    values <- ifelse(at > 0, substr(found, at + 1, nchar(found)), NA)
    stats::setNames(as.list(values), ifelse(at > 0, substr(found, 1, at - 1), found))
  }

  serve_one <- function() {
    head <- rawToChar(readBin(from, "raw", 32))
    if (nchar(head) < 32) quit("no", 0, FALSE)
    tryCatch(allowInterrupts(Sys.sleep(0)), interrupt = function(e) NULL) # one that came too late for the cell before
    head <- strsplit(trimws(head), " +")[[1]]
    number <- as.numeric(head[2])
    text <- file("/proc/self/fd/7", "rb", raw = TRUE)
    bytes <- raw()
    while (length(more <- readBin(text, "raw", 2^20))) bytes <- c(bytes, more)
    close(text)
    own <- as.integer(head[3]) # of a question, its cursor
    running <- head[1] == "execute"
    code <- rawToChar(if (running) bytes[seq_along(bytes) > own] else bytes)
    Encoding(code) <- "UTF-8"
    if (running) {
      ok <- execute(code, number, pieces(bytes[seq_len(own)]))
      send("end", sprintf("%.0f %d %s", number, if (ok) 0L else 1L, getwd()))
    } else {
      answer <- tryCatch(switch(head[1], complete = complete(code, own), inspect = inspect(code, own), is_complete = is_complete(code)),
        error = function(e) list())
      for (name in names(answer)) send(paste0("reply:", name), as.character(answer[[name]]))
      send("end", sprintf("%.0f 0 %s", number, getwd()))
    }
  }

  # Names that cells find

  leave <- function(...) stop(structure(class = c("QuitError", "error", "condition"),
    list(message = "quit() ends the cell, not the context", call = NULL)))
  display <- function(value) { show_value(value, FALSE); invisible() }
  of_type <- function(type) function(content) { part(type, content); send_show(FALSE); invisible() }
  attach(list(q = leave, quit = leave, display = display, display_html = of_type("text/html"), display_markdown = of_type("text/markdown"),
    display_svg = of_type("image/svg+xml"), display_latex = of_type("text/latex"), display_json = of_type("application/json"),
    display_png = of_type("image/png")), name = "tools:cloche", warn.conflicts = FALSE)

  # A kernel that was killed has not removed its folder. The next one does.
  owner <- ".cloche-kernel"
  for (name in Sys.glob(file.path(dirname(tempdir()), "Rtmp*", owner))) {
    pid <- suppressWarnings(tryCatch(readLines(name, 1, warn = FALSE), error = function(e) ""))
    if (isTRUE(grepl("^[0-9]+$", pid)) && !file.exists(file.path("/proc", pid))) unlink(dirname(name), recursive = TRUE)
  }
  writeLines(as.character(own_pid), file.path(tempdir(), owner))
  options(device = device, warn = 1, menu.graphics = FALSE, browser = "false", pager = "cat", keep.source = TRUE, max.print = 5000L)
  send("end", sprintf("0 0 %s", getwd()))
  suspendInterrupts(repeat serve_one())
}, new.env(parent = .BaseNamespaceEnv)) # what cells define hides nothing from it
