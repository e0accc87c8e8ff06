"""Pages for a browser, and tables for a notebook.

page          `render_page`: one self-contained page of any tables, figures and findings
report_page   `render_report`: the page of a report, with its charts
page.html.jinja, style.css, script.js    the page; jinja2 fills in the template
"""
