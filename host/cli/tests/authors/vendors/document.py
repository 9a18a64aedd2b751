"""Writes two documents into a folder with pypdf, and prints the text that pypdf reads from the pages of the first one.

`letter.pdf` has an attachment that is larger than the memory of a node. `bomb.pdf` is small, and its page is not once unpacked.
"""

import json
import sys

from pypdf import PdfReader, PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

LETTER = [["Dear Ada,", "it rains in K\xf6ln (again)."], ["Greetings to Ada,", "Grace"]]
ATTACHMENT_MIB = 80
BOMB_MIB = 300


def document(contents: list[bytes]) -> PdfWriter:
    writer = PdfWriter()
    font = {"Type": "Font", "Subtype": "Type1", "BaseFont": "Helvetica", "Encoding": "WinAnsiEncoding"}
    font = DictionaryObject({NameObject(f"/{name}"): NameObject(f"/{value}") for name, value in font.items()})
    fonts = DictionaryObject({NameObject("/Font"): DictionaryObject({NameObject("/F"): font})})
    for content in contents:
        stream = DecodedStreamObject()
        stream.set_data(content)
        page = writer.add_blank_page(width=300, height=300)
        page[NameObject("/Resources")] = fonts
        page[NameObject("/Contents")] = writer._add_object(stream.flate_encode())
    return writer


def shown(lines: list[str]) -> bytes:
    escaped = [line.encode("cp1252").replace(b"(", b"\\(").replace(b")", b"\\)") for line in lines]
    return b"BT /F 12 Tf 14 TL 50 200 Td " + b" T* ".join(b"(" + line + b") Tj" for line in escaped) + b" ET"


folder = sys.argv[1]
letter = document([shown(lines) for lines in LETTER])
letter.add_attachment("large.bin", bytes(ATTACHMENT_MIB << 20))
letter.write(f"{folder}/letter.pdf")
document([b" " * (BOMB_MIB << 20)]).write(f"{folder}/bomb.pdf")
print(json.dumps([page.extract_text() for page in PdfReader(f"{folder}/letter.pdf").pages]))
