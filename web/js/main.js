document.title = "Sluice";
