"""Pages for a browser, and tables for a notebook.

page          `render_page`: one self-contained page of any tables, figures, findings and a picture
report_page   `render_report`: the page of a report, with its charts
sequence      the packets of a connection, as the page draws them
page.html.jinja, style.css, script.js, sequence.js, picture.js    the page; jinja2 fills in the template
"""
